// The functions of operations.h: loops over the registers of strips.
#include "cpu/shared/special.h"
#include "prebuilt/operation.h"

namespace graphc::strips {
namespace {
// What a register of a value is in memory: its elements, a mask's as words.
template <class T> INLINE vec<T> read(const char* p) {
  vec<T> v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
template <class T> INLINE void write(char* p, vec<T> v) { __builtin_memcpy(p, &v, sizeof v); }

// The steps are read once: what is written might be they.
template <auto F, class R, class A> void unary(const Operands& o, long registers, long rows) {
  char* d = o.result;
  const char* a = o.at[0];
  const long next = o.step[0], jump[] = {o.jump[0], o.jump[3]};
  for (; rows; rows--, a += jump[0], d += jump[1])
    for (long r = registers; r; r--, d += sizeof(vec<R>), a += next) write<R>(d, F(read<A>(a)));
}
template <auto F, class R, class A, class B>
void binary(const Operands& o, long registers, long rows) {
  char* d = o.result;
  const char *a = o.at[0], *b = o.at[1];
  const long next[] = {o.step[0], o.step[1]}, jump[] = {o.jump[0], o.jump[1], o.jump[3]};
  for (; rows; rows--, a += jump[0], b += jump[1], d += jump[2])
    for (long r = registers; r; r--, d += sizeof(vec<R>), a += next[0], b += next[1])
      write<R>(d, F(read<A>(a), read<B>(b)));
}
template <auto F, class R, class A, class B, class C>
void ternary(const Operands& o, long registers, long rows) {
  char* d = o.result;
  const char *a = o.at[0], *b = o.at[1], *c = o.at[2];
  const long next[] = {o.step[0], o.step[1], o.step[2]},
             jump[] = {o.jump[0], o.jump[1], o.jump[2], o.jump[3]};
  for (; rows; rows--, a += jump[0], b += jump[1], c += jump[2], d += jump[3])
    for (long r = registers; r; r--, d += sizeof(vec<R>), a += next[0], b += next[1], c += next[2])
      write<R>(d, F(read<A>(a), read<B>(b), read<C>(c)));
}

#define GRAPHC_UNARY(R, expression, A) \
  unary<[](vec<A> a) __attribute__((always_inline)) -> vec<R> { return expression; }, R, A>,
#define GRAPHC_BINARY(R, expression, A, B)                                                       \
  binary<[](vec<A> a, vec<B> b) __attribute__((always_inline)) -> vec<R> { return expression; }, \
         R, A, B>,
#define GRAPHC_TERNARY(R, expression, A, B, C)                                 \
  ternary<[](vec<A> a, vec<B> b, vec<C> c)                                     \
              __attribute__((always_inline)) -> vec<R> { return expression; }, \
          R, A, B, C>,
}  // namespace

const Operation OPERATIONS[] = {
#include "prebuilt/operations.h"
};
}  // namespace graphc::strips

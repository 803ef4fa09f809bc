// Elements of a sort as entries, in one text for registers of the CPU and scalars of a GPU.
//
// An element becomes a number that grows in the order wanted: its key above, its place below, so that no two are equal and equal
// keys stay in order. NaN comes last. The lowest bit tells a negative zero, whose key is that of zero.
//
// Whoever includes this defines GRAPHC_KEYS, the qualifiers of a function, same_bits<T>(register), bit_of(mask), and Entries<T>,
// which keys of Key<T> and low words are made `of`.
#pragma once

namespace graphc {
template <bool WIDE> struct KeyTypes {
  using Unsigned = uint32_t;
  using Signed = int32_t;
};
template <> struct KeyTypes<true> {
  using Unsigned = uint64_t;
  using Signed = int64_t;
};
template <class T> using Key = typename KeyTypes<sizeof(T) == 8>::Unsigned;
template <class T> using SignedKey = typename KeyTypes<sizeof(T) == 8>::Signed;
template <class T> constexpr Key<T> top_bit = Key<T>(1) << (8 * sizeof(Key<T>) - 1);
template <class T> constexpr bool is_mask = false;
template <> constexpr bool is_mask<bool> = true;
template <class T> constexpr bool is_float = !is_mask<T> && T(0.5) != T(0);

template <class T> GRAPHC_KEYS vec<Key<T>> key_of(vec<T> v) {
  using U = Key<T>;
  using S = SignedKey<T>;
  if constexpr (is_mask<T>) return bit_of(v);
  else if constexpr (sizeof(T) == 1) return same_bits<U>(convert<S>(v) + (T(-1) < T(0) ? 128 : 0));
  else if constexpr (is_float<T>) {
    v = v + T(0);  // of a negative zero, zero
    const vec<S> bits = same_bits<S>(v);
    const vec<U> flip = same_bits<U>(bits >> (8 * sizeof(T) - 1)) | top_bit<T>;
    return select(isnan(v), splat<U>(~U(0)), same_bits<U>(bits) ^ flip);
  } else return same_bits<U>(v) ^ top_bit<T>;
}
template <class T> GRAPHC_KEYS vec<T> value_of(vec<Key<T>> key, vec<uint32_t> low) {
  using U = Key<T>;
  using S = SignedKey<T>;
  if constexpr (is_mask<T>) return to_bool(key);
  else if constexpr (sizeof(T) == 1)
    return convert<T>(same_bits<S>(key) - (T(-1) < T(0) ? 128 : 0));
  else if constexpr (is_float<T>) {
    const vec<U> flip = same_bits<U>(same_bits<S>(~key) >> (8 * sizeof(T) - 1)) | top_bit<T>;
    return same_bits<T>((key ^ flip) | convert<U>(low & 1) << (8 * sizeof(T) - 1));
  } else return same_bits<T>(key ^ top_bit<T>);
}

template <class T> struct Ordered {
  vec<T> value;
  vec<int32_t> place;
};
template <class T, bool DESCENDING> GRAPHC_KEYS vec<Key<T>> turned(vec<Key<T>> key) {
  if constexpr (!DESCENDING) return key;
  else if constexpr (sizeof(T) == 1) return 255 - key;
  else return ~key;
}
template <class T, bool DESCENDING> GRAPHC_KEYS Entries<T> pack(vec<T> v, vec<int32_t> place) {
  vec<uint32_t> low = same_bits<uint32_t>(place) << 1;
  if constexpr (is_float<T>)
    low |= bit_of(as_mask(same_bits<SignedKey<T>>(v) == SignedKey<T>(top_bit<T>)));
  return Entries<T>::of(turned<T, DESCENDING>(key_of<T>(v)), low);
}
template <class T, bool DESCENDING> GRAPHC_KEYS Ordered<T> unpack(const Entries<T>& entries) {
  const vec<uint32_t> low = entries.low();
  return {value_of<T>(turned<T, DESCENDING>(entries.key()), low), same_bits<int32_t>(low >> 1)};
}
}  // namespace graphc

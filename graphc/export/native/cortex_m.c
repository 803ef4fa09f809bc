/* Starts a Cortex-M with an FPU, runs the self-test, and prints by semihosting, as debuggers and
   QEMU's `-semihosting` offer it:

     qemu-system-arm -M mps2-an500 -nographic -semihosting -kernel build/NAME_selftest.elf

   A program of your own replaces `run`. */
#include "NAME.h"

int NAME_selftest(const void* weights, size_t size, uint32_t* checksums, int* calls);

extern unsigned char stack_begin[], stack_top[], bss_begin[], bss_end[], data_begin[], data_end[],
    data_source[];

static int semihosting(int operation, const void* argument) {
  register int r0 __asm__("r0") = operation;
  register const void* r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

static void print(const char* text) { semihosting(4, text); }

static void print_number(uint32_t number, int digits) {
  char text[9] = "00000000";
  for (int i = digits - 1; i >= 0; i--, number >>= 4) text[i] = "0123456789abcdef"[number & 15];
  text[digits] = 0;
  print(text);
}

/* How much of the stack was written, in bytes: the rest still holds what `reset` put there. */
static uint32_t stack_bytes(void) {
  const unsigned char* at = stack_begin;
  while (at < stack_top && *at == 0xa5) at++;
  return (uint32_t)(stack_top - at);
}

static int run(void) {
  static uint32_t checksums[CALLS];
  int calls = 0;
  const int wrong = NAME_selftest(NAME_weights, UPPER_WEIGHTS_BYTES, checksums, &calls);
  if (wrong < 0) return print("the weights are refused\n"), 2;
  for (int i = 0; i < calls; i++) print("state "), print_number(checksums[i], 8), print("\n");
  print("stack "), print_number(stack_bytes(), 8), print("\n");
  print(wrong ? "some calls have other bits\n" : "all calls have the same bits\n");
  return wrong != 0;
}

__attribute__((noreturn, used)) void reset(void) {
  *(volatile uint32_t*)0xe000ed88 |= 0xf << 20; /* the FPU is on */
  __asm__ volatile("dsb\n isb");
  for (unsigned char *to = data_begin, *from = data_source; to < data_end;) *to++ = *from++;
  for (unsigned char* to = bss_begin; to < bss_end;) *to++ = 0;
  volatile unsigned char mark;
  for (unsigned char* to = stack_begin; to < &mark - 64;) *(volatile unsigned char*)to++ = 0xa5;
  const uint32_t reason[] = {0x20026, (uint32_t)run()}; /* the application ended, with this code */
  semihosting(0x20, reason);
  for (;;) {
  }
}

static void fault(void) {
  print("fault\n");
  const uint32_t reason[] = {0x20026, 3};
  semihosting(0x20, reason);
  for (;;) {
  }
}

__attribute__((section(".vectors"), used)) static const void* const vectors[16] = {
    stack_top, (void*)reset, (void*)fault, (void*)fault, (void*)fault, (void*)fault, (void*)fault,
};

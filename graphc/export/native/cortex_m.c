/* Starts a Cortex-M with an FPU, runs `main`, and prints by semihosting, as debuggers and QEMU's
   `-semihosting` offer it. */
#include "cortex_m.h"

int main(void);

extern unsigned char stack_begin[], stack_top[], bss_begin[], bss_end[], data_begin[], data_end[],
    data_source[], code_begin[];

static int semihosting(int operation, const void* argument) {
  register int r0 __asm__("r0") = operation;
  register const void* r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}

void cortex_m_print(const char* text) { semihosting(4, text); }

void cortex_m_print_hex(uint32_t number) {
  char text[9] = "00000000";
  for (int i = 7; number; i--, number >>= 4) text[i] = "0123456789abcdef"[number & 15];
  cortex_m_print(text);
}

void cortex_m_print_decimal(uint32_t number) {
  char text[11] = "0000000000";
  int i = 10;
  do text[--i] = (char)('0' + number % 10);
  while (number /= 10);
  cortex_m_print(text + i);
}

uint32_t cortex_m_stack_bytes(void) {
  const unsigned char* at = stack_begin;
  while (at < stack_top && *at == 0xa5) at++;
  return (uint32_t)(stack_top - at);
}

uint32_t cortex_m_flash_bytes(void) {
  return (uint32_t)(data_source - code_begin + (data_end - data_begin));
}

__attribute__((noreturn, used)) void reset(void) {
  *(volatile uint32_t*)0xe000ed88 |= 0xf << 20; /* the FPU is on */
  __asm__ volatile("dsb\n isb");
  for (unsigned char *to = data_begin, *from = data_source; to < data_end;) *to++ = *from++;
  for (unsigned char* to = bss_begin; to < bss_end;) *to++ = 0;
  volatile unsigned char mark;
  for (unsigned char* to = stack_begin; to < &mark - 64;) *(volatile unsigned char*)to++ = 0xa5;
  const uint32_t reason[] = {0x20026, (uint32_t)main()}; /* the application ended, with this code */
  semihosting(0x20, reason);
  for (;;) {
  }
}

static void fault(void) {
  cortex_m_print("fault\n");
  const uint32_t reason[] = {0x20026, 3};
  semihosting(0x20, reason);
  for (;;) {
  }
}

__attribute__((section(".vectors"), used)) static const void* const vectors[16] = {
    stack_top, (void*)reset, (void*)fault, (void*)fault, (void*)fault, (void*)fault, (void*)fault,
};

/* The self-test on a Cortex-M:

     qemu-system-arm -M mps2-an500 -nographic -semihosting -kernel build/NAME_selftest.elf */
#include "NAME.h"
#include "cortex_m.h"

int NAME_selftest(const void* weights, size_t size, uint32_t* checksums, int* calls);

int main(void) {
  static uint32_t checksums[CALLS];
  int calls = 0;
  const int wrong = NAME_selftest(NAME_weights, UPPER_WEIGHTS_BYTES, checksums, &calls);
  if (wrong < 0) return cortex_m_print("the weights are refused\n"), 2;
  for (int i = 0; i < calls; i++) {
    cortex_m_print("state "), cortex_m_print_hex(checksums[i]), cortex_m_print("\n");
  }
  cortex_m_print("stack "), cortex_m_print_hex(cortex_m_stack_bytes()), cortex_m_print("\n");
  cortex_m_print(wrong ? "some calls have other bits\n" : "all calls have the same bits\n");
  return wrong != 0;
}

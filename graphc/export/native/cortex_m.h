// What cortex_m.c offers to the `main` that it starts.
#ifndef CORTEX_M_H
#define CORTEX_M_H
#include <stdint.h>

/* By semihosting. */
void cortex_m_print(const char* text);
void cortex_m_print_hex(uint32_t number); /* eight digits */
void cortex_m_print_decimal(uint32_t number);

/* How many bytes of the stack have been written since the start, which fills it with 0xa5. */
uint32_t cortex_m_stack_bytes(void);
/* How many bytes of flash memory the program takes. */
uint32_t cortex_m_flash_bytes(void);
#endif

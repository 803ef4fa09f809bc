/* Judges frames of a machine, learns how it sounds by now, and judges again. A frame is one of
   `frames.h`, which stand here for what a microphone would bring. */
#include "cortex_m.h"
#include "detector.h"
#include "frames.h"

_Alignas(64) static unsigned char arena[DETECTOR_ARENA_BYTES], state[DETECTOR_STATE_BYTES];
static detector model;

static void line(const char* what, uint32_t number) {
  cortex_m_print(what), cortex_m_print(" "), cortex_m_print_decimal(number), cortex_m_print("\n");
}

/* The system timer counts down at 25 MHz, which QEMU's `-icount shift=0` makes 40 instructions. */
static volatile uint32_t* const timer = (volatile uint32_t*)0xe000e010;
static uint32_t since(uint32_t start) { return ((start - timer[2]) & 0xffffff) * 40; }

static void judge(const char* what, const unsigned char (*frames)[FRAME]) {
  uint32_t alarms = 0;
  for (int i = 0; i < JUDGED; i++) {
    union {
      float number;
      uint32_t bits;
    } error;
    const detector_score_inputs inputs = {frames[i]};
    const detector_score_outputs outputs = {&error.number};
    detector_score(&model, &inputs, &outputs);
    alarms += error.number > THRESHOLD;
    cortex_m_print("score "), cortex_m_print_hex(error.bits), cortex_m_print("\n");
  }
  line(what, alarms);
}

int main(void) {
  timer[1] = 0xffffff, timer[2] = 0, timer[0] = 5; /* from the top, by the clock of the core */
  if (detector_init(&model, arena, state, detector_weights, DETECTOR_WEIGHTS_BYTES)) return 1;
  judge("new_sound", new_sound), judge("new_fault", new_fault);
  judge("worn_sound", worn_sound), judge("worn_fault", worn_fault);

  float loss;
  const detector_adapt_outputs losses = {&loss};
  uint32_t start = timer[2];
  for (int step = 0; step < STEPS; step++) {
    const detector_adapt_inputs batch = {heard[step * BATCH]};
    start = timer[2];
    detector_adapt(&model, &batch, &losses);
  }
  line("adapt_instructions", since(start));
  judge("worn_sound", worn_sound), judge("worn_fault", worn_fault);

  const detector_score_inputs inputs = {heard[0]};
  const detector_score_outputs outputs = {&loss};
  start = timer[2];
  detector_score(&model, &inputs, &outputs);
  line("score_instructions", since(start));
  line("arena", sizeof arena), line("state", sizeof state);
  line("stack", cortex_m_stack_bytes());
  line("weights", DETECTOR_WEIGHTS_BYTES), line("flash", cortex_m_flash_bytes());
  cortex_m_print("hash ");
  cortex_m_print_hex(((const uint32_t*)detector_save(&model))[3]); /* CRC-32 of all state */
  return cortex_m_print("\n"), 0;
}

/* Goes on with the training that export_cpp.py began: steps FIRST to LAST (exclusive). */
#include <stdio.h>
#include <stdlib.h>

#include "product.h"

_Alignas(64) static unsigned char arena[PRODUCT_ARENA_BYTES], state[PRODUCT_STATE_BYTES];
static unsigned char weights[PRODUCT_WEIGHTS_BYTES];
static float x[PRODUCT_TRAIN_X_COUNT], y[PRODUCT_TRAIN_Y_COUNT];

/* The points of one step, and what is to be learned of them. */
static void fill(unsigned step) {
  for (unsigned i = 0; i < PRODUCT_TRAIN_X_COUNT; i++) {
    uint32_t number = (step * PRODUCT_TRAIN_X_COUNT + i) * 2654435761u;
    number = (number ^ number >> 15) * 2246822519u;
    x[i] = (float)(number >> 8) * 0x1p-23f - 1;
  }
  for (unsigned i = 0; i < PRODUCT_TRAIN_Y_COUNT; i++) y[i] = x[2 * i] * x[2 * i + 1];
}

int main(int count, char** words) {
  FILE* file = fopen("product.weights", "rb");
  if (count != 3 || !file) return 1;
  const size_t size = fread(weights, 1, sizeof weights, file);
  fclose(file);
  product model;
  int error = product_init(&model, arena, state, weights, size);
  float loss, prediction;
  const product_train_inputs batch = {x, y};
  const product_train_outputs losses = {&loss};
  for (int step = atoi(words[1]); !error && step < atoi(words[2]); step++) {
    fill((unsigned)step);
    error = product_train(&model, &batch, &losses);
    printf("%a\n", loss);
  }
  const float half[] = {0.5f, 0.5f};
  const product_predict_inputs point = {half};
  const product_predict_outputs result = {&prediction};
  if (!error) error = product_predict(&model, &point, &result);
  printf("%a\n", prediction);
  return error;
}

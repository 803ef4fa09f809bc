// Contractions by description: units of work, blocks of terms, tiles. See contraction.h.
#include "prebuilt/contract_unit.h"

extern "C" void graphc_contract(void* const* arguments, int phase, int chunk) {
  using namespace graphc::products;
  const Contraction& d = *(const Contraction*)arguments[-1];
  if (d.parts_apart && phase == d.phase + 1) return OutputBox(d, arguments).add_parts(chunk);
  if (phase != d.phase || chunk >= d.chunks) return;
  const long end = (chunk + 1) * d.units / d.chunks;
  for (long u = chunk * d.units / d.chunks; u < end; u++) Unit(d, arguments, u).run();
}

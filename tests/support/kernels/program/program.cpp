// Runs the kernels of one instruction set through the C interface, for processors without a Python here.
//
// program SET FILE: writes the results of all cases, and fails if a row has other bits alone than in a
// batch. The inputs are equal everywhere, so results of sets can be compared. Without arguments it
// lists the sets that run.
#include "attention.h"
#include "experts.h"
#include "products.h"
#include "sampling.h"

int main(int argc, char** argv) {
  for (int32_t isa = 0; pw_isa_name(isa) != nullptr; isa++) {
    if (argc < 3) {
      if (pw_isa_runs(isa)) printf("%s\n", pw_isa_name(isa));
      continue;
    }
    if (strcmp(pw_isa_name(isa), argv[1]) != 0) continue;
    if (!pw_isa_runs(isa)) Results::fail(std::string(argv[1]) + " does not run here");
    PwPool* pool = pw_pool_new(isa, 2);
    Results results(argv[2]);
    run_products(pool, results);
    run_codes(pool, results);
    run_activations(pool, results);
    run_rows(pool, results);
    run_attention(pool, results);
    run_experts(pool, results);
    run_sampling(pool, results);
    pw_pool_free(pool);
    return 0;
  }
  if (argc < 3) return 0;
  Results::fail(std::string("there is no ") + argv[1]);
}

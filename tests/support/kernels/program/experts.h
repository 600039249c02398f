// A layer with experts, whose matrices have each storage.
#pragma once
#include "products.h"

static constexpr int32_t HIDDEN_SIZE = 64, INNER_SIZE = 32, NUM_EXPERTS = 5, NUM_CHOSEN = 2;

static PwOperation operation(int32_t kind, int32_t input, int32_t output) {
  PwOperation o = {};
  o.kind = kind;
  o.input = input;
  o.output = output;
  o.factor = 1.0f;
  o.num_slices = o.num_cuts = 1;
  return o;
}

// The states of some tokens behind one layer of experts.
static Floats run_layer(PwPool* pool, int32_t type, int32_t kind, const std::vector<int64_t>& tokens) {
  const Matrix embedding(pool, type, 48, HIDDEN_SIZE), router(pool, type, 16, HIDDEN_SIZE);
  std::vector<Matrix*> matrices;
  std::vector<PwLinear> gates, downs;
  for (int32_t e = 0; e < NUM_EXPERTS; e++) {
    matrices.push_back(new Matrix(pool, kind, 2 * INNER_SIZE, HIDDEN_SIZE));
    gates.push_back(matrices.back()->linear);
    matrices.push_back(new Matrix(pool, kind, HIDDEN_SIZE, INNER_SIZE));
    downs.push_back(matrices.back()->linear);
  }
  Numbers numbers(9);
  Floats weight = numbers.floats(HIDDEN_SIZE);
  const PwNorm norm = {weight.data(), nullptr, 1e-6f, HIDDEN_SIZE, 0};
  PwRouter routing = {};
  routing.num_experts = NUM_EXPERTS;
  routing.num_chosen = NUM_CHOSEN;
  routing.num_groups = routing.num_chosen_groups = routing.group_best = 1;
  routing.is_normalised = 1;
  routing.factor = 1.5f;
  PwOperation all[] = {
      operation(PW_NORM, PW_RESIDUAL, PW_NORMED),
      operation(PW_PREPARE, PW_NORMED, PW_PREPARED),
      operation(PW_STORE, PW_NORMED, PW_PRODUCTS),
      operation(PW_ROUTE, PW_PRODUCTS, PW_WEIGHTS),
      operation(PW_SORT, PW_CHOSEN, PW_CHOSEN),
      operation(PW_SPREAD, PW_NORMED, PW_EXPERT_INPUT),
      operation(PW_EXPERT_GATE, PW_EXPERT_INPUT, PW_EXPERT_ACTIVATED),
      operation(PW_EXPERT_PREPARE, PW_EXPERT_ACTIVATED, PW_EXPERT_PREPARED),
      operation(PW_EXPERT_STORE, PW_EXPERT_ACTIVATED, PW_EXPERT_OUTPUT),
      operation(PW_COLLECT, PW_EXPERT_OUTPUT, PW_RESIDUAL),
  };
  all[0].norm = &norm;
  all[2].linear = all[3].linear = &router.linear;
  all[2].num_columns = router.linear.num_outputs;
  for (PwOperation& one : all)
    if (one.kind >= PW_ROUTE) one.router = &routing;
  all[1].linear = all[5].linear = all[6].linear = gates.data();
  all[7].linear = all[8].linear = downs.data();
  const PwLayer layer = {all, sizeof(all) / sizeof(all[0])};
  PwModel model = {};
  model.type = type;
  model.num_layers = 1;
  model.hidden = HIDDEN_SIZE;
  model.num_heads = model.num_kv_heads = 1;
  model.head_dim = model.block_size = 16;
  model.embedding_factor = 1.0f;
  model.norm = norm;
  model.embedding = embedding.linear;
  model.layers = &layer;
  model.looks_up = model.has_end = 1;
  const int64_t count = (int64_t)tokens.size(), rows = count * NUM_CHOSEN;
  std::vector<int64_t> positions, starts = {0, count}, lengths = {count}, table((size_t)count, 0);
  for (int64_t i = 0; i < count; i++) positions.push_back(i);
  PwBatch batch = {};
  batch.num_tokens = batch.num_outputs = count;
  batch.num_seqs = 1;
  batch.table_stride = count;
  batch.token_ids = tokens.data();
  batch.positions = batch.slot_mapping = batch.output_rows = positions.data();
  batch.query_starts = starts.data();
  batch.seq_lens = lengths.data();
  batch.block_tables = table.data();
  std::vector<std::vector<uint8_t>> memory;
  PwScratch scratch = {};
  for (void*& buffer : scratch.buffers) {
    memory.emplace_back((size_t)(rows * 4096 + 16384));
    buffer = memory.back().data();
  }
  std::vector<uint8_t> states((size_t)(count * HIDDEN_SIZE * 4));
  pw_step(pool, &model, &batch, &scratch, 0, 1, states.data());
  for (Matrix* one : matrices) delete one;
  return widened(states.data(), (size_t)(count * HIDDEN_SIZE), type);
}

static void run_experts(PwPool* pool, Results& results) {
  for (int32_t type = 0; type < 2; type++)
    for (int32_t kind : {type, (int32_t)PW_INT8, (int32_t)PW_INT4, (int32_t)PW_CODES4}) {
      const std::string name = std::string("experts-") + TYPE_NAMES[type] + "-" + KIND_NAMES[kind];
      std::vector<int64_t> tokens;
      for (int64_t i = 0; i < 40; i++) tokens.push_back(i * 7 % 48);
      const Floats all = run_layer(pool, type, kind, tokens);
      for (size_t i = 0; i < 3; i++)
        Results::expect_equal(name, run_layer(pool, type, kind, {tokens[i]}).data(),
                              all.data() + i * HIDDEN_SIZE, HIDDEN_SIZE);
      results.add(name, all);
    }
}

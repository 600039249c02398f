// Products of matrices of every storage, and what follows them.
#pragma once
#include "abi.h"
#include "values.h"

static const char* const KIND_NAMES[] = {"float32", "bfloat16", "int8",   "int4",
                                         "codes8",  "codes4",   "floats8"};

// A packed matrix of random numbers.
class Matrix {
 public:
  Matrix(PwPool* pool, int32_t kind, int32_t outputs, int32_t inputs, int32_t scale_type = 0,
         int32_t offset_kind = 0)
      : numbers_((uint32_t)(outputs + 31 * inputs + kind)), bias_(numbers_.floats(outputs)) {
    linear = {};
    linear.kind = kind;
    linear.num_outputs = outputs;
    linear.num_inputs = inputs;
    linear.group = kind >= PW_INT4 ? 32 : inputs;
    linear.scale_type = scale_type;
    linear.offset_kind = offset_kind;
    linear.factor_groups = scale_type == PW_SCALE_INT8 ? inputs / linear.group : 0;
    linear.bias = kind < PW_CODES8 ? bias_.data() : nullptr;
    row_scales_.resize((size_t)outputs);
    linear.scales = row_scales_.data();
    weight_.resize((size_t)pw_weight_bytes(&linear) + 64);
    linear.weight = (void*)(((uintptr_t)weight_.data() + 63) & ~(uintptr_t)63);
    if (kind == PW_FLOATS8)
      for (int i = 0; i < 256; i++) table_[i] = float8(i);
    else
      for (int i = 0; i < 16; i++) table_[i] = numbers_.next();
    linear.table = table_;
    if (kind >= PW_CODES8)
      pack_codes(pool);
    else
      pw_pack(pool, &linear, 0, numbers_.floats((int64_t)outputs * inputs).data(), outputs, 0, 1);
  }
  Matrix(const Matrix&) = delete;

  std::vector<uint8_t> prepared(int64_t num_rows) const {
    return std::vector<uint8_t>((size_t)(pw_prepared_row_bytes(&linear) * num_rows) + 64);
  }

  PwLinear linear;

 private:
  void pack_codes(PwPool* pool) {
    const int64_t count = (int64_t)linear.num_outputs * linear.num_inputs;
    std::vector<uint8_t> codes((size_t)count);
    const uint32_t most = linear.kind == PW_CODES4 ? 16 : 256;
    for (uint8_t& code : codes) {
      code = (uint8_t)(numbers_.bits() % most);
      if (linear.kind == PW_FLOATS8 && code % 128 == 127) code--;  // it is no number
    }
    const std::vector<uint8_t> scales = small(count / linear.group);
    const std::vector<uint8_t> offsets = small(count / linear.group);
    const std::vector<uint8_t> factors = halves(2 * (int64_t)linear.num_outputs);
    const PwCodes rows = {codes.data(), scales.data(), linear.offset_kind ? offsets.data() : nullptr,
                          factors.data(), factors.data() + factors.size() / 2};
    pw_pack_codes(pool, &linear, &rows, linear.num_outputs, 0, 1);
  }
  // The value of a float of 8 bits, e4m3fn.
  static float float8(int code) {
    const int exponent = code >> 3 & 15, digits = code & 7;
    const float size = exponent ? ldexpf((float)(8 + digits), exponent - 10) : ldexpf((float)digits, -9);
    return code < 128 ? size : -size;
  }
  // Numbers of the type of scales, some of float16 below the normal ones.
  std::vector<uint8_t> small(int64_t count) {
    if (linear.scale_type == PW_SCALE_INT8) {
      std::vector<uint8_t> bytes((size_t)count);
      for (uint8_t& one : bytes) one = (uint8_t)numbers_.bits();
      return bytes;
    }
    const bool is_float32 = linear.scale_type == PW_SCALE_FLOAT32;
    std::vector<uint8_t> all((size_t)count * (is_float32 ? 4 : 2));
    for (int64_t i = 0; i < count; i++) {
      const float x = numbers_.next() / 16.0f;
      uint16_t half = (uint16_t)(numbers_.bits() % 0x3000);
      if (linear.scale_type == PW_SCALE_BFLOAT16) memcpy(&half, (const char*)&x + 2, 2);
      if (is_float32)
        memcpy(all.data() + 4 * i, &x, 4);
      else
        memcpy(all.data() + 2 * i, &half, 2);
    }
    return all;
  }

  // Positive numbers of float16.
  std::vector<uint8_t> halves(int64_t count) {
    std::vector<uint8_t> all((size_t)count * 2);
    for (int64_t i = 0; i < count; i++) {
      const uint16_t half = (uint16_t)(numbers_.bits() % 0x3000);
      memcpy(all.data() + 2 * i, &half, 2);
    }
    return all;
  }

  Numbers numbers_;
  Floats bias_, row_scales_;
  float table_[256];
  std::vector<uint8_t> weight_;
};

static Floats multiply(PwPool* pool, int32_t type, const Matrix& matrix, const Floats& x) {
  const int64_t rows = (int64_t)x.size() / matrix.linear.num_inputs, stride = matrix.linear.num_outputs;
  Activations input(x, type);
  std::vector<uint8_t> prepared = matrix.prepared(rows);
  Floats y((size_t)(rows * stride));
  pw_linear(pool, type, &matrix.linear, input.data(), rows, prepared.data(), y.data(), stride);
  return y;
}

// Any number of rows, and each of them alone.
static void check_product(PwPool* pool, Results& results, int32_t type, const Matrix& matrix,
                          const std::string& name) {
  const int64_t inputs = matrix.linear.num_inputs, outputs = matrix.linear.num_outputs;
  static const int64_t COUNTS[] = {2, 3, 4, 5, 6, 7, 8, 13, 50};
  Numbers numbers(7);
  const Floats x = numbers.floats(50 * inputs);
  const Floats all = multiply(pool, type, matrix, x);
  results.add(name, all);
  for (int64_t count : COUNTS) {
    const Floats some(x.begin(), x.begin() + count * inputs);
    Results::expect_equal(name, multiply(pool, type, matrix, some).data(), all.data(),
                          (size_t)(count * outputs));
  }
  for (int64_t row = 0; row < 6; row++) {
    const Floats one(x.begin() + row * inputs, x.begin() + (row + 1) * inputs);
    Results::expect_equal(name, multiply(pool, type, matrix, one).data(), all.data() + row * outputs,
                          (size_t)outputs);
  }
}

static void run_products(PwPool* pool, Results& results) {
  static const int32_t SIZES[][2] = {{16, 32}, {112, 224}};
  for (int32_t type = 0; type < 2; type++)
    for (int32_t kind : {type, (int32_t)PW_INT8, (int32_t)PW_INT4})
      for (auto [outputs, inputs] : SIZES) {
        const Matrix matrix(pool, kind, outputs, inputs);
        check_product(pool, results, type, matrix,
                      std::string("product-") + TYPE_NAMES[type] + "-" + KIND_NAMES[kind] + "-" +
                          std::to_string(inputs));
      }
}

static void run_codes(PwPool* pool, Results& results) {
  for (int32_t type = 0; type < 2; type++)
    for (int32_t kind = PW_CODES8; kind <= PW_FLOATS8; kind++)
      for (int32_t scales = 0; scales < 4; scales++)
        for (int32_t offsets = 0; offsets < 3; offsets++) {
          const Matrix matrix(pool, kind, 48, 96, scales, offsets);
          check_product(pool, results, type, matrix,
                        std::string("codes-") + TYPE_NAMES[type] + "-" + KIND_NAMES[kind] + "-" +
                            std::to_string(scales) + std::to_string(offsets));
        }
}

static void run_activations(PwPool* pool, Results& results) {
  const Matrix matrix(pool, PW_FLOAT32, 64, 32);
  Numbers numbers(3);
  Floats x = numbers.floats(9 * 32);
  for (int32_t function = PW_SILU; function <= PW_CLAMPED_SWIGLU; function++)
    for (int32_t is_gated = function == PW_CLAMPED_SWIGLU; is_gated < 2; is_gated++) {
      const PwActivation activation = {function, 1.5f, 1.702f};
      Floats y((size_t)(9 * 64 / (is_gated + 1)));
      pw_activate(pool, 0, &matrix.linear, &activation, is_gated, x.data(), 9, nullptr, y.data());
      results.add("activation-" + std::to_string(function) + std::to_string(is_gated), y);
    }
}

static void run_rows(PwPool* pool, Results& results) {
  const Matrix matrix(pool, PW_FLOAT32, 64, 32);
  Numbers numbers(5);
  Floats x = numbers.floats(9 * 32), weight = numbers.floats(32), bias = numbers.floats(32);
  for (int32_t type = 0; type < 2; type++)
    for (int32_t is_centered = 0; is_centered < 2; is_centered++) {
      const PwNorm norm = {weight.data(), is_centered ? bias.data() : nullptr, 1e-6f, 32, is_centered};
      std::vector<uint8_t> y(9 * 32 * 4);
      pw_norm(pool, type, x.data(), &norm, 9, y.data());
      results.add(std::string("norm-") + TYPE_NAMES[type] + std::to_string(is_centered),
                  widened(y.data(), 9 * 32, type));
    }
  int64_t best[9];
  pw_argmax(pool, 0, &matrix.linear, x.data(), 9, nullptr, 60, best);
  results.add("argmax", Floats(best, best + 9));
  for (float softcap : {0.0f, 2.5f}) {
    Floats logits = x;
    for (float& one : logits) one *= 9.0f;
    pw_finish_logits(pool, logits.data(), 9 * 32, 3.0f, softcap);
    results.add("logits-" + std::to_string((int)softcap), logits);
  }
}

// Inputs that are equal on all processors, and the file of results.
#pragma once
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>
#include <vector>

typedef std::vector<float> Floats;

static const char* const TYPE_NAMES[] = {"float32", "bfloat16"};

// Numbers between -1 and 1 with some digits, the same everywhere (a linear congruence).
class Numbers {
 public:
  explicit Numbers(uint32_t seed) : state_(seed * 2654435761u + 12345u) {}
  uint32_t bits() {
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }
  float next() { return (float)((int32_t)(bits() % 65536) - 32768) / 32768.0f; }
  Floats floats(int64_t count) {
    Floats all((size_t)count);
    for (float& one : all) one = next();
    return all;
  }

 private:
  uint32_t state_;
};

// Activations of a type: float32, or their upper halves.
struct Activations {
  std::vector<uint8_t> memory;

  Activations(const Floats& values, int32_t type) : memory(values.size() * (type ? 2 : 4)) {
    for (size_t i = 0; i < values.size(); i++) {
      if (type == 0)
        memcpy(memory.data() + 4 * i, &values[i], 4);
      else
        memcpy(memory.data() + 2 * i, (const char*)&values[i] + 2, 2);
    }
  }
  void* data() { return memory.data(); }
};

static inline Floats widened(const void* memory, size_t count, int32_t type) {
  Floats all(count);
  for (size_t i = 0; i < count; i++) {
    uint32_t bits = 0;
    if (type == 0)
      memcpy(&bits, (const char*)memory + 4 * i, 4);
    else
      memcpy((char*)&bits + 2, (const char*)memory + 2 * i, 2);
    memcpy(&all[i], &bits, 4);
  }
  return all;
}

// Results: per case a line with its name and count, and then float32 numbers.
class Results {
 public:
  explicit Results(const char* path) : file_(fopen(path, "wb")) {
    if (file_ == nullptr) fail("the file of results cannot be written");
  }
  ~Results() { fclose(file_); }
  void add(const std::string& name, const Floats& values) {
    fprintf(file_, "%s %zu\n", name.c_str(), values.size());
    fwrite(values.data(), 4, values.size(), file_);
  }
  [[noreturn]] static void fail(const std::string& reason) {
    fprintf(stderr, "%s\n", reason.c_str());
    exit(1);
  }
  // A row has the same bits alone.
  static void expect_equal(const std::string& name, const float* one, const float* other,
                           size_t count) {
    if (memcmp(one, other, count * 4) != 0) fail(name + ": not the same bits alone");
  }

 private:
  FILE* file_;
};

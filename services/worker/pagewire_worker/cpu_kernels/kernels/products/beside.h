// Work that is done beside the products of tiles.
//
// Products of tiles leave one of the two vector units free, and all others. A processor looks some hundreds
// of instructions ahead, so all are busy only where instructions of both kinds alternate.
#pragma once

namespace PW_ISA {

// Nothing to do.
struct NoWork {
  void step() {}
};

// Calls work(0), work(1), ... `count` times, spread over the steps.
template <class Work>
class Beside {
 public:
  explicit Beside(const Work& work) : work_(work) {}
  // What was left is not done.
  void begin(int64_t count, int64_t num_steps) {
    next_ = owed_ = 0;
    count_ = count;
    num_steps_ = num_steps;
  }
  void step() {
    for (owed_ += count_; owed_ >= num_steps_ && next_ < count_; owed_ -= num_steps_) work_(next_++);
  }
  // Do what is left.
  void finish() {
    while (next_ < count_) work_(next_++);
  }

 private:
  const Work& work_;
  int64_t next_ = 0, count_ = 0, num_steps_ = 1, owed_ = 0;
};

}  // namespace PW_ISA

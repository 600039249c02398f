// Gumbel noise of tokens: -log(-log(u)), u from Philox4x32-10 (Salmon et al., 2011, "Parallel random
// numbers: as easy as 1, 2, 3"). ../../../sampling/philox.py says the same in torch.
#pragma once

namespace PW_ISA {

static constexpr int WORDS = sizeof(Words) / 4;
typedef float WordFloats __attribute__((vector_size(sizeof(Words))));
typedef int32_t WordInts __attribute__((vector_size(sizeof(Words))));

static constexpr int NOISE_TOKENS = 4 * WORDS;  // that share a call of the generator

struct NoiseKey {
  uint32_t seed_low, seed_high, position, choice;
};

static inline Words same_words(uint32_t x) { return x - (Words){}; }
static inline WordFloats same_floats(float x) { return x - (WordFloats){}; }

// The words of tokens `first` to `first` + NOISE_TOKENS; `first` is a multiple of 4. Word k of lane j
// belongs to token first + 4 j + k.
static inline void random_words(const NoiseKey& key, uint32_t first, Words* words) {
  Words counters;
  for (int lane = 0; lane < WORDS; lane++) counters[lane] = first / 4 + (uint32_t)lane;
  Words c0 = same_words(key.position), c1 = same_words(key.choice), c2 = counters, c3 = {};
  uint32_t k0 = key.seed_low, k1 = key.seed_high;
  for (int round = 0; round < 10; round++) {
    Words low0, high0, low1, high1;
    multiply_words(c0, 0xD2511F53u, &low0, &high0);
    multiply_words(c2, 0xCD9E8D57u, &low1, &high1);
    c0 = high1 ^ c1 ^ same_words(k0);
    c1 = low1;
    c2 = high0 ^ c3 ^ same_words(k1);
    c3 = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

// log(x) of normal positive numbers to about 2 ulp: Cephes' logf (Moshier, 1989).
static inline WordFloats log_briefly(WordFloats x) {
  const Words bits = (Words)x;
  const WordInts power = (WordInts)(bits - 0x3f3504f3u) >> 23;  // the rest is about sqrt(1/2) to sqrt(2)
  const WordFloats e = __builtin_convertvector(power, WordFloats);
  const WordFloats f = (WordFloats)(bits - ((Words)power << 23)) - 1.0f, z = f * f;
  WordFloats p = f * 7.0376836292e-2f - 1.1514610310e-1f;
  p = p * f + 1.1676998740e-1f;
  p = p * f - 1.2420140846e-1f;
  p = p * f + 1.4249322787e-1f;
  p = p * f - 1.6668057665e-1f;
  p = p * f + 2.0000714765e-1f;
  p = p * f - 2.4999993993e-1f;
  p = p * f + 3.3333331174e-1f;
  p = p * f * z;
  p = p - e * 2.12194440e-4f - z * 0.5f;
  return f + p + e * 0.693359375f;
}

// The noise of words, to BRIEF_ERROR.
static inline WordFloats brief_noise(Words words) {
  const WordInts odd = (WordInts)((words >> 9) * 2u + 1u);  // below 2^24, so exact as a float
  const WordFloats u = __builtin_convertvector(odd, WordFloats) * 0x1p-24f;
  return -log_briefly(-log_briefly(u));
}

static constexpr float BRIEF_ERROR = 1e-5f;
static constexpr float MOST_NOISE = 16.6356f;  // -log(-log(1 - 2^-24)), rounded up

// log(x) of normal positive numbers to less than 1 ulp, with the same bits on every processor: the
// method and the constants of fdlibm's log (Sun Microsystems, 1993).
static inline double log_exactly(double x) {
  int64_t bits;
  __builtin_memcpy(&bits, &x, 8);
  // The power of 2 that leaves a number between about sqrt(1/2) and sqrt(2).
  const int64_t power = (bits - 0x3fe6a09e667f3bcdLL) >> 52;
  bits -= power << 52;
  double m;
  __builtin_memcpy(&m, &bits, 8);
  const double k = (double)power, f = m - 1.0;
  const double s = f / (2.0 + f), z = s * s, w = z * z;
  const double even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
  const double odd = z * (6.666666666666735130e-01 +
                          w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
  const double half = 0.5 * f * f, r = even + odd;
  return k * 6.93147180369123816490e-01 - ((half - (s * (half + r) + k * 1.90821492927058770002e-10)) - f);
}

// The noise of a word, rounded to a float once.
static inline float exact_noise(uint32_t word) {
  const double u = (double)((word >> 9) * 2u + 1u) * 0x1p-24;
  return (float)-log_exactly(-log_exactly(u));
}

// The noise of one token.
static inline float noise_of(const NoiseKey& key, int64_t token) {
  Words words[4];
  random_words(key, (uint32_t)(token & ~(int64_t)3), words);
  return exact_noise(words[token & 3][0]);
}

}  // namespace PW_ISA

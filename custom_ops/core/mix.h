#ifndef TFSPARSE_CORE_MIX_H_
#define TFSPARSE_CORE_MIX_H_

#include "core/types.h"

namespace tfsparse {

// Mix() spreads keys over all 64 bits; Unmix() is its exact inverse. Users' ids come with
// structure (a feature prefix in the high bits, strides, timestamps) and everything below the
// table relies on uniform hashes. Being a bijection, it loses no key and the key need not be
// stored beside its hash.
//
// The function is the finaliser of SplitMix64 (Steele, Lea, Flood 2014; constants: Stafford's
// variant 13). It decides which rank owns a key and in which order checkpoints store rows, so
// it is frozen by golden values (tests/core/mix_test.cc); a change would orphan every file.
inline Hash Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline uint64_t Unmix(Hash h) {
  h = (h ^ (h >> 31) ^ (h >> 62)) * 0x319642b2d24d8ec3u;
  h = (h ^ (h >> 27) ^ (h >> 54)) * 0x96de1b173f119089u;
  return h ^ (h >> 30) ^ (h >> 60);
}

inline Hash HashOf(Key key) { return Mix(static_cast<uint64_t>(key)); }
inline Key KeyOf(Hash hash) { return static_cast<Key>(Unmix(hash)); }

}  // namespace tfsparse

#endif  // TFSPARSE_CORE_MIX_H_

#ifndef TFSPARSE_CORE_MULTIVERSION_H_
#define TFSPARSE_CORE_MULTIVERSION_H_

// TFSPARSE_MULTIVERSION before a function compiles it for several instruction sets and picks
// one when the library is loaded, so that one wheel runs on any x86-64 host and still uses
// wide vectors. The versions give equal bits: they differ in width only, because the build
// forbids contraction (-ffp-contract=off) and reassociation (no -ffast-math). Use it on leaf
// loops over floats. Sanitizers cannot instrument the resolver; their builds switch it off.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(TFS_NO_MULTIVERSION)
#define TFSPARSE_MULTIVERSION __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TFSPARSE_MULTIVERSION
#endif

#endif  // TFSPARSE_CORE_MULTIVERSION_H_

/* Memory that begins with a cache line. Windows has functions of its own for it. */
#pragma once
#include <stdlib.h>
#ifdef _WIN32
#include <malloc.h>
#endif

enum { CACHE_LINE = 64 };

static inline void *aligned_new(size_t size) {
#ifdef _WIN32
  return _aligned_malloc(size, CACHE_LINE);
#else
  return aligned_alloc(CACHE_LINE, (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
#endif
}

static inline void aligned_free(void *memory) {
#ifdef _WIN32
  _aligned_free(memory);
#else
  free(memory);
#endif
}

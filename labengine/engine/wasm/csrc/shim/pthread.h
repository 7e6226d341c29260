/* The part of pthread.h that team.h uses, for one thread: a page without shared memory cannot start another. */
#pragma once

typedef int pthread_t;
typedef int pthread_mutex_t;
typedef int pthread_cond_t;

/* Fails: the team stays as small as it is. */
static inline int pthread_create(pthread_t *thread, const void *settings, void *(*work)(void *), void *argument) {
  (void)thread, (void)settings, (void)work, (void)argument;
  return 1;
}
static inline int pthread_join(pthread_t thread, void **result) { return (void)thread, (void)result, 0; }
static inline int pthread_mutex_init(pthread_mutex_t *mutex, const void *settings) {
  return (void)mutex, (void)settings, 0;
}
static inline int pthread_mutex_lock(pthread_mutex_t *mutex) { return (void)mutex, 0; }
static inline int pthread_mutex_unlock(pthread_mutex_t *mutex) { return (void)mutex, 0; }
static inline int pthread_cond_init(pthread_cond_t *condition, const void *settings) {
  return (void)condition, (void)settings, 0;
}
static inline int pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
  return (void)condition, (void)mutex, 0;
}
static inline int pthread_cond_broadcast(pthread_cond_t *condition) { return (void)condition, 0; }

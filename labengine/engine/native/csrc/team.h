/* A team of threads that computes one step's ops together: all members run the same ops, take tasks of the current op
   until none is left, and wait at a barrier before the next. A waiting member spins for some microseconds, because the
   next op is that near; then it yields its core, and only after about a millisecond it sleeps: a sleeping thread
   wakes up late, and makes the others wait until they sleep. */
#pragma once
#include "aligned.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { SPINS = 1000, YIELDS = 2000 };

typedef struct Team Team;
typedef void (*Work)(Team *team, int member, void *argument);

struct Team {
  int num_members;
  pid_t process;               /* threads do not survive a fork */
  Work work;
  void *argument;
  _Alignas(64) _Atomic long next_task;
  _Alignas(64) _Atomic int num_arrived;
  _Alignas(64) _Atomic unsigned generation; /* counts meetings: who waits for one waits for this to change */
  _Alignas(64) _Atomic int num_sleeping;
  _Atomic int is_over;
  pthread_mutex_t mutex;
  pthread_cond_t woken;
  pthread_t *threads;
};

static inline void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Return the next task of the current op, counted from 0. Each op knows its number of tasks. */
static inline long take_task(Team *team) { return atomic_fetch_add_explicit(&team->next_task, 1, memory_order_relaxed); }

static void await_barrier(Team *team, unsigned before) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&team->generation, memory_order_acquire) != before) return;
    pause_briefly();
  }
  for (int i = 0; i < YIELDS; i++) {
    if (atomic_load_explicit(&team->generation, memory_order_acquire) != before) return;
    sched_yield();
  }
  pthread_mutex_lock(&team->mutex);
  atomic_fetch_add(&team->num_sleeping, 1);
  while (atomic_load(&team->generation) == before) pthread_cond_wait(&team->woken, &team->mutex);
  atomic_fetch_sub(&team->num_sleeping, 1);
  pthread_mutex_unlock(&team->mutex);
}

/* Wait for all members. Earlier writes of each are seen by all afterwards; tasks count from 0 again. */
static void barrier(Team *team) {
  unsigned before = atomic_load_explicit(&team->generation, memory_order_relaxed);
  if (atomic_fetch_add(&team->num_arrived, 1) + 1 < team->num_members) {
    await_barrier(team, before);
    return;
  }
  atomic_store_explicit(&team->num_arrived, 0, memory_order_relaxed);
  atomic_store_explicit(&team->next_task, 0, memory_order_relaxed);
  atomic_store(&team->generation, before + 1);
  if (atomic_load(&team->num_sleeping) > 0) {
    pthread_mutex_lock(&team->mutex);
    pthread_cond_broadcast(&team->woken);
    pthread_mutex_unlock(&team->mutex);
  }
}

typedef struct {
  Team *team;
  int member;
} Membership;

static void *be_member(void *argument) {
  Membership me = *(Membership *)argument;
  free(argument);
  for (;;) {
    barrier(me.team); /* work begins */
    if (me.team->is_over) return NULL;
    me.team->work(me.team, me.member, me.team->argument);
    barrier(me.team); /* work ends */
  }
}

/* A thread that cannot be created makes the team smaller. */
static void start_threads(Team *team) {
  int wanted = team->num_members;
  team->num_members = 1;
  team->process = getpid();
  atomic_store(&team->next_task, 0);
  atomic_store(&team->num_arrived, 0);
  atomic_store(&team->num_sleeping, 0);
  pthread_mutex_init(&team->mutex, NULL);
  pthread_cond_init(&team->woken, NULL);
  for (int member = 1; member < wanted; member++) {
    Membership *me = malloc(sizeof *me);
    if (!me) return;
    *me = (Membership){team, member};
    team->num_members++; /* before it begins: it takes part in the barrier */
    if (pthread_create(&team->threads[member], NULL, be_member, me)) {
      team->num_members--;
      free(me);
      return;
    }
  }
}

/* Do `work` with the whole team, the caller being member 0. One caller at a time. */
static void work_together(Team *team, Work work, void *argument) {
  if (team->num_members > 1 && team->process != getpid()) start_threads(team);
  team->work = work;
  team->argument = argument;
  barrier(team);
  work(team, 0, argument);
  barrier(team);
}

Team *team_new(int num_members) {
  Team *team = aligned_new(sizeof *team);
  pthread_t *threads = calloc(num_members, sizeof *threads);
  if (!team || !threads) return NULL;
  *team = (Team){.num_members = num_members, .threads = threads};
  start_threads(team);
  return team;
}

void team_free(Team *team) {
  if (team->process == getpid()) {
    team->is_over = 1;
    barrier(team);
    for (int member = 1; member < team->num_members; member++) pthread_join(team->threads[member], NULL);
  }
  free(team->threads);
  aligned_free(team);
}

/* -- the division of an op's rows: short runs, taken by any free member -- */

enum { ROWS_AT_ONCE = 8 };

typedef struct {
  int64_t begin, end;
} Rows;

/* Take the next rows of `num_rows`; return 0 when none is left. */
static inline int take_rows(Team *team, int64_t num_rows, Rows *rows) {
  rows->begin = (int64_t)take_task(team) * ROWS_AT_ONCE;
  rows->end = rows->begin + ROWS_AT_ONCE < num_rows ? rows->begin + ROWS_AT_ONCE : num_rows;
  return rows->begin < num_rows;
}

/* All ops for one dtype, and the loop over a program's ops. Included once per dtype. */
#include "linear.h"
#include "rowwise.h"
#include "attention.h"

/* -- the loop over ops, run by all members of a team side by side -- */

typedef void (*NAME(OpFunction))(const Op *op, const Step *step, Team *team, int member);

static const NAME(OpFunction) NAME(op_functions)[] = {
    [EMBED] = NAME(op_embed), [ROTATION] = NAME(op_rotation), [NORM] = NAME(op_norm),
    [LINEAR] = NAME(op_linear), [ROTATE] = NAME(op_rotate),       [ATTEND] = NAME(op_attend),
    [ARGMAX] = op_argmax,
};

typedef struct {
  const Op *ops;
  int64_t num_ops;
  const Step *step;
  double *seconds; /* NULL, or one per op: its time, the wait for the slowest member included */
} NAME(Walk);

static void NAME(walk)(Team *team, int member, void *argument) {
  const NAME(Walk) *walk = argument;
  double before = walk->seconds && member == 0 ? now() : 0;
  for (int64_t i = 0; i < walk->num_ops; i++) {
    const Op *op = &walk->ops[i];
    NAME(op_functions)[op->kind](op, walk->step, team, member);
    barrier(team);
    if (walk->seconds && member == 0) {
      double after = now();
      walk->seconds[i] += after - before;
      before = after;
    }
  }
}

void NAME(run_program)(Team *team, const Op *ops, int64_t num_ops, const Step *step, double *seconds) {
  NAME(Walk) walk = {ops, num_ops, step, seconds};
  work_together(team, NAME(walk), &walk);
}

// The steps of a recording: where each begins and ends, its phases, and which were rolled back.

import { lastBefore } from "./arrays.ts";
import type { AnyRow, Phase } from "./events.ts";
import { phaseAfter } from "./events.ts";

// A step is {step, start, end, isRolledBack, forward, phases}: `start` is the moment before its StepStarted, `end` the
// one after its StepEnded or StepRolledBack (null while it goes on), `forward` the one after ForwardRan (null without
// one). phases: [{moment, phase}], each from that moment on.
export interface StepRecord {
  step: number;
  start: number;
  end: number | null;
  isRolledBack: boolean;
  forward: number | null;
  phases: { moment: number; phase: Phase }[];
}

// A step that was rolled back.
export interface Rollback extends StepRecord {
  end: number;
}

export class StepLog {
  steps: StepRecord[] = [];
  rollbacks: Rollback[] = []; // the steps that were rolled back
  phases: { moment: number; phase: Phase | null }[] = [{ moment: 0, phase: null }];
  open: StepRecord | null = null; // the step that a StepRolledBack event would roll back

  // Event number i, of this kind. Returns the step that it rolls back, or null.
  note(i: number, name: string, row: AnyRow): Rollback | null {
    this.notePhase(i + 1, phaseAfter(name, this.phases[this.phases.length - 1].phase));
    if (name === "StepStarted") this.begin(i, row[1] as number);
    else if (name === "ForwardRan" && this.open) this.open.forward = i + 1;
    else if (name === "StepEnded") this.end(i + 1, row[1] as number);
    else if (name === "StepRolledBack") return this.rollBack(i + 1, row[1] as number);
    else if (name === "EngineStarted") this.open = null;
    return null;
  }

  // The step that the newest event at that moment belongs to, or the last one before it; null before the first.
  at(moment: number) {
    return this.steps[lastBefore(this.steps, moment, (step) => step.start)] ?? null;
  }

  phaseAt(moment: number) {
    return this.phases[lastBefore(this.phases, moment + 1, (phase) => phase.moment)]?.phase ?? null;
  }

  // The first rolled-back step that ends after this moment, or undefined.
  rollbackAfter(moment: number): Rollback | undefined {
    return this.rollbacks[lastBefore(this.rollbacks, moment + 1, (step) => step.end) + 1];
  }

  // Forget what ended before a moment at which a step starts.
  drop(moment: number) {
    this.steps = this.steps.filter(({ start }) => start >= moment);
    this.rollbacks = this.rollbacks.filter(({ start }) => start >= moment);
    this.phases = [{ moment, phase: this.phaseAt(moment) }, ...this.phases.filter((phase) => phase.moment > moment)];
  }

  begin(start: number, step: number) {
    this.open = {
      step,
      start,
      end: null,
      isRolledBack: false,
      forward: null,
      phases: [{ moment: start + 1, phase: "schedule" }],
    };
    this.steps.push(this.open);
  }

  end(moment: number, step: number) {
    const ended = this.steps.findLast((one) => one.step === step);
    if (ended && ended.end === null) ended.end = moment;
  }

  rollBack(moment: number, step: number): Rollback | null {
    const rolledBack = this.open?.step === step ? this.open : null;
    this.open = null;
    if (!rolledBack) return null;
    const rollback = Object.assign(rolledBack, { end: moment, isRolledBack: true });
    this.rollbacks.push(rollback);
    return rollback;
  }

  notePhase(moment: number, phase: Phase | null) {
    if (phase === this.phases[this.phases.length - 1].phase) return;
    this.phases.push({ moment, phase });
    if (phase && this.open && phase !== "schedule") this.open.phases.push({ moment, phase });
  }
}

// The four charts: each one's figure per step, its text, and the height of its axis.

import type { Recording } from "../../model/recording.ts";
import type { Story } from "../../model/story.ts";

// Most charts are lines; the tokens per step are bars of prefill (striped) on bars of decode (solid).
export function figures(): FigureKind[] {
  return [
    {
      name: "Blocks in use",
      most: (story) => story.numBlocks,
      values: ({ series }) => series.used,
      peaks: ({ series }) => series.peak,
      say: ({ series, numBlocks }, i) => {
        const { used, evictable, peak } = series,
          apart = evictable[i] ? `, and ${evictable[i]} evictable` : "";
        return `${used[i]} of ${numBlocks}${apart} (peak ${peak[i]})`;
      },
    },
    {
      name: "Hit rate so far",
      most: () => 1,
      unit: "%",
      values: ({ series }) => series.hit.map((hit, i) => (series.looked[i] ? hit / series.looked[i] : 0)),
      say: ({ series }, i) =>
        `${Math.round((100 * series.hit[i]) / (series.looked[i] || 1))} % of ` +
        `${series.looked[i].toLocaleString()} prompt tokens`,
    },
    {
      name: "Tokens per step",
      values: ({ series }) => series.decode,
      stacked: ({ series }) => series.prefill,
      say: ({ series }, i) => `${series.prefill[i]} prefill, ${series.decode[i]} decode`,
    },
    {
      name: "Step time",
      unit: "ms",
      values: ({ series }, { seconds }) =>
        seconds.size ? series.step.map((step) => 1000 * (seconds.get(step) ?? 0)) : null,
      say: ({ series }, i, { seconds }) => `${milliseconds((seconds.get(series.step[i]) ?? 0) * 1000)} ms`,
    },
  ];
}

function milliseconds(time: number) {
  return time < 10 ? time.toPrecision(2) : time < 100 ? time.toFixed(1) : Math.round(time).toLocaleString();
}

// The values that a chart draws per step. stacked: bars of these values on top of the others; peaks: a line above.
export interface FigureKind {
  name: string;
  unit?: string;
  most?: (story: Story) => number;
  values: (story: Story, recording: Recording) => number[] | null;
  stacked?: (story: Story) => number[];
  peaks?: (story: Story) => number[];
  say: (story: Story, index: number, recording: Recording) => string;
}

const FEW = 0.2; // of the steps may be cut
const FAR = 4; // times as high as the highest of the rest
const LEAST = 4; // steps that there must be
const READABLE = 16; // times the typical axis: on such an axis the others can still be compared

// {most, isCut}: the axis ends there; isCut: some values lie beyond.
export function scaleOf(values: number[]) {
  const highest = values.reduce((most, value) => Math.max(most, value), 0),
    typical = withoutFew(values),
    most = rounded(typical);
  return highest > READABLE * most ? { most, isCut: true } : { most: rounded(highest), isCut: false };
}

// The highest value but for the few that stand out.
function withoutFew(values: number[]) {
  const sorted = values.filter((value) => value > 0).sort((a, b) => b - a),
    few = Math.max(1, Math.floor(FEW * sorted.length));
  if (sorted.length < LEAST) return sorted[0] ?? 0;
  let at = 0;
  for (let i = 0; i < few; i++) if (sorted[i] > FAR * sorted[i + 1]) at = i + 1;
  return sorted[at];
}

// A round number that is not smaller: 1, 2, 5 and their tens.
function rounded(value: number) {
  if (value <= 0) return 1;
  const ten = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((digit) => digit * ten >= value * (1 - 1e-9)) ?? 10) * ten;
}

// A value as the axis has it.
export function axisLabel(value: number, unit?: string) {
  if (unit === "%") return `${Math.round(100 * value)}%`;
  if (unit === "ms") return value >= 1000 ? `${short(value / 1000)} s` : value ? `${short(value)} ms` : "0";
  return value >= 10000 ? `${short(value / 1000)}k` : short(value);
}

function short(value: number) {
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
}

// The views by name. A layout leaves out those that are not here.
import { create as createPool, title as titlePool } from "./pool.ts";
import { create as createGroups, title as titleGroups } from "./groups.ts";
import { create as createMap, title as titleMap } from "./map.ts";
import { create as createCode, title as titleCode } from "./code.ts";
import { create as createWhy, title as titleWhy } from "./why.ts";
import { create as createQueue, title as titleQueue } from "./queue.ts";
import { create as createStep, title as titleStep } from "./step.ts";
import { create as createTables, title as titleTables } from "./tables.ts";
import { create as createTier, title as titleTier } from "./tier.ts";
import { create as createTimeline, title as titleTimeline } from "./timeline.ts";
import { create as createBands, title as titleBands } from "./bands.ts";
import { create as createLog, title as titleLog } from "./log.ts";
import { create as createCharts, title as titleCharts } from "./charts.ts";

export const VIEWS = {
  pool: { create: createPool, title: titlePool },
  groups: { create: createGroups, title: titleGroups },
  map: { create: createMap, title: titleMap },
  code: { create: createCode, title: titleCode },
  why: { create: createWhy, title: titleWhy },
  queue: { create: createQueue, title: titleQueue },
  step: { create: createStep, title: titleStep },
  tables: { create: createTables, title: titleTables },
  tier: { create: createTier, title: titleTier },
  timeline: { create: createTimeline, title: titleTimeline },
  bands: { create: createBands, title: titleBands },
  log: { create: createLog, title: titleLog },
  charts: { create: createCharts, title: titleCharts },
};

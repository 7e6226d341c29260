// The arrangements by name.
import { lay as layCompare } from "./compare.ts";
import { lay as layDashboard } from "./dashboard.ts";
import { lay as laySingle } from "./single.ts";

export const LAYOUTS = { compare: layCompare, dashboard: layDashboard, view: laySingle };

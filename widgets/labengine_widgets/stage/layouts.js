// The arrangements by name.
import { lay as layCompare } from "./compare.js";
import { lay as layDashboard } from "./dashboard.js";
import { lay as laySingle } from "./single.js";

export const LAYOUTS = { compare: layCompare, dashboard: layDashboard, view: laySingle };

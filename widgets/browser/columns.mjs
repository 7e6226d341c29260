// Exit with 1 if a line of the sources is longer than 120 columns: the formatter leaves texts and comments as they are.
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const MOST = 120;
const SOURCES = dirname(fileURLToPath(import.meta.url));

for (const name of readdirSync(SOURCES, { recursive: true }).filter((one) => /\.(ts|mjs)$/.test(one)))
  for (const [i, line] of readFileSync(join(SOURCES, name), "utf8").split("\n").entries())
    if (line.length > MOST) {
      console.error(`widgets/browser/${name}:${i + 1}: ${line.length} columns, more than ${MOST}`);
      process.exitCode = 1;
    }

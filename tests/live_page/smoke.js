// Run in Node: the package in Pyodide, as the page's worker has it. node smoke.js PYODIDE_FOLDER ARCHIVE
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, archive] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href);
const py = await loadPyodide({ indexURL: `${folder}/` });
py.unpackArchive(new Uint8Array(readFileSync(archive)), "zip", { extractDir: "/lib/labengine" });
const printed = await py.runPythonAsync(`
import asyncio, json, sys
sys.path.insert(0, "/lib/labengine")
import labengine
import labengine.isolation.limits

async def until(is_so):
    while not is_so():  # the process that runs this has a time limit
        await asyncio.sleep(0)

lab = labengine.Lab("simulated", num_blocks=24, block_size=4, edition="nano-vllm+243")
for _ in "AB":
    lab.add("Two people ask the very same question at the very same moment. The", max_tokens=8)
lab.step()
used = lab.snapshot().num_used_blocks
lab.start()
await until(lambda: not lab.is_running)
try:
    labengine.Lab("smollm2")
    refusal = ""
except labengine.ConfigError as error:
    refusal = str(error)
patience, labengine.isolation.limits.MONITORED_S = labengine.isolation.limits.MONITORED_S, 0.5
looping = labengine.exercise("first-light/peak")
def peak_and_after(num_tokens, block_size, num_copies):
    while True:
        pass
checked = str(looping.check(peak_and_after))
labengine.isolation.limits.MONITORED_S = 100 * patience
finding = str(labengine.find(labengine.bug("nano-vllm-71").column("PR 71").all_parts, "nano-vllm", seconds=5, workers=1))
try:
    labengine.ModelRunner
    runner = ""
except labengine.ConfigError as error:
    runner = str(error)
json.dumps({
    "checked": checked,
    "finding": finding,
    "runner": runner,
    "platform": sys.platform,
    "used": used,
    "finished": lab.stats().num_finished,
    "violations": len(lab.violations),
    "why": str(lab.why(block=0)),
    "verdict": labengine.bug("nano-vllm-219").verdict().reproduced,
    "refusal": refusal,
})
`);
process.stdout.write(`${printed}\n`, () => process.exit(0)); // timers of Pyodide would keep Node alive

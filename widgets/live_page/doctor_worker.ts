// The doctor's Python in a worker. A dropped file is mounted, not copied: Python reads it from the disk as it needs it.
import { begin, post } from "./python.ts";

const PLACE = "/dropped";

begin((py) => {
  const { DoctorPage } = py.pyimport("labengine.live_page.doctor_page"),
    page = DoctorPage((kind, content) => post(kind, JSON.parse(content)));
  py.FS.mkdirTree(PLACE);
  self.onmessage = ({ data: { file, asked } }: MessageEvent<{ file: File; asked: Record<string, string> }>) => {
    py.FS.mount(py.FS.filesystems.WORKERFS, { files: [file] }, PLACE);
    page.receive(JSON.stringify({ place: `${PLACE}/${file.name}`, asked }));
    py.FS.unmount(PLACE);
  };
});

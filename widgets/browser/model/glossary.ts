// The words of the screen, each in one sentence: labengine/glossary.json.
import terms from "../../../labengine/glossary.json";

export type Term = keyof typeof terms;

export function meaning(term: Term): string {
  return terms[term];
}

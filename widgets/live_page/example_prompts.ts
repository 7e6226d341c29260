// A made file whose prompts all begin with the time of day: the commonest reason for a low hit rate.
const RULES = `You are the assistant of a city library. Answer in one or two sentences. Name the shelf whenever a book is
meant, and the desk whenever a person is needed. Never promise that a book is there: say that the catalogue lists it.
Readers below the age of twelve get short words. Opening hours are nine to seven on weekdays, and ten to four on Saturdays;
the reading room closes half an hour earlier. Fines are waived for the first week. Maps and newspapers do not leave the
house. Questions about the law or about health are referred to the desk on the second floor.`,
  QUESTIONS = ["Where are the maps?", "Who wrote Emma?", "When do you close?", "How do I renew a card?"],
  NUM_PROMPTS = 200;

export function exampleFile() {
  const lines = Array.from({ length: NUM_PROMPTS }, (_, number) => JSON.stringify(line(number)));
  return new File([`${lines.join("\n")}\n`], "example.jsonl");
}

function line(number: number) {
  const time = new Date(Date.UTC(2026, 0, 5, 9) + 7000 * number).toISOString().slice(11, 19),
    question = QUESTIONS[number % QUESTIONS.length];
  return { prompt: `It is ${time}. ${RULES.replaceAll("\n", " ")} ${question}`, output_tokens: 24 };
}

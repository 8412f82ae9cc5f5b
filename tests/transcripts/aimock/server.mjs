// A model server that answers every request it understands, and tells what it understood; it ends with its input.
import { LLMock } from "@copilotkit/aimock";
import { createInterface } from "node:readline";

const mock = new LLMock({ port: 0 });
mock.on({ predicate: () => true }, { content: "Understood." });
await mock.start();
console.log(JSON.stringify({ url: mock.url }));

const understood = (entry) => ({
  path: entry.path,
  roles: (entry.body?.messages ?? []).map((message) => message.role),
  calls: (entry.body?.messages ?? []).flatMap((message) => (message.tool_calls ?? []).map((call) => call.id)),
  results: (entry.body?.messages ?? []).filter((message) => message.role === "tool").map((message) => message.tool_call_id),
});

for await (const line of createInterface({ input: process.stdin })) {
  if (line === "requests") {
    console.log(JSON.stringify(mock.getRequests().map(understood)));
    mock.clearRequests();
  }
}
await mock.stop();

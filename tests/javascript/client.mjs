// The official JavaScript client, made to perform one operation after another: node client.mjs URL BINDING.
// Writes one line of JSON for each, for the test to judge.

import { ClientFactory, ClientFactoryOptions } from "@a2a-js/sdk/client";
import {
  CancelTaskRequest,
  GetTaskRequest,
  ListTasksRequest,
  Message,
  SendMessageRequest,
  StreamResponse,
  SubscribeToTaskRequest,
  Task,
} from "@a2a-js/sdk";

const [url, binding] = process.argv.slice(2);
const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, { preferredTransports: [binding] });
const client = await new ClientFactory(options).createFromUrl(url);

let sent = 0;

function message(text, members = {}) {
  sent += 1;
  const said = { messageId: `js-${sent}`, role: "ROLE_USER", parts: [{ text }], ...members };
  return SendMessageRequest.fromJSON({ message: said });
}

function say(operation, answer) {
  console.log(JSON.stringify({ operation, answer }));
}

async function events(stream) {
  const all = [];
  for await (const event of stream) all.push(StreamResponse.toJSON(event));
  return all;
}

say("transport", client.transport.protocolName);

const completed = await client.sendMessage(message("echo hello"));
say("send", Task.toJSON(completed));

say("stream", await events(client.sendMessageStream(message("chunks"))));

say("reply", Message.toJSON(await client.sendMessage(message("reply"))));
say("streamed reply", await events(client.sendMessageStream(message("reply"))));

const waiting = await client.sendMessage(message("ask"));
say("ask", Task.toJSON(waiting));

const followUp = await client.sendMessage(message("echo again", { taskId: waiting.id, contextId: waiting.contextId }));
say("follow-up", Task.toJSON(followUp));

say("get", Task.toJSON(await client.getTask(GetTaskRequest.fromJSON({ id: completed.id }))));

const listing = await client.listTasks(ListTasksRequest.fromJSON({ pageSize: 2, contextId: completed.contextId }));
say("list", listing.tasks.map((task) => task.id));

const running = client.sendMessageStream(message("wait"));
const first = StreamResponse.toJSON((await running.next()).value);
const subscription = client.resubscribeTask(SubscribeToTaskRequest.fromJSON({ id: first.task.id }));
const shown = StreamResponse.toJSON((await subscription.next()).value);
say("subscribe", shown);
say("cancel", Task.toJSON(await client.cancelTask(CancelTaskRequest.fromJSON({ id: first.task.id }))));
say("rest of the subscription", await events(subscription));
await running.return();

try {
  await client.getTask(GetTaskRequest.fromJSON({ id: "nowhere" }));
  say("unknown task", null);
} catch (error) {
  say("unknown task", error.constructor.name);
}

// Connections that are kept alive would keep the process for seconds.
process.exit(0);

// The original, answering questions: one JSON request a line on stdin, one JSON answer a line on stdout.
// Text is ASCII-escaped in both directions, so that lone surrogates survive the pipe.
import { createInterface } from 'node:readline'
import { Context } from '@deepseek-ai/cordis'
import SessionStore, { Session, interruptedTurnClosers, packChunkRuns } from '@deepseek-ai/dsh-session'
import Jsonl from '@deepseek-ai/dsh-session-persistence-jsonl'

const ascii = (value) =>
  JSON.stringify(value).replace(/[\u007f-\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'))

async function mounted(root, compression, body) {
  const ctx = new Context()
  await ctx.plugin(SessionStore)
  const fiber = await ctx.plugin(Jsonl, { root, compression })
  try {
    return await body(ctx)
  } finally {
    await fiber.dispose()
  }
}

const plain = (value) => JSON.parse(JSON.stringify(value))

// Appends whole events as they are given (seq, time and all) through the public service.
async function writeBatches(service, meta, batches) {
  await service.create(meta)
  for (const batch of batches) await service.append(meta.id, batch)
}

const questions = {
  ping: async () => 'pong',
  versions: async () => ({ node: process.versions.node, zstd: process.versions.zstd }),
  closers: async ({ events }) => interruptedTurnClosers(events),
  pack: async ({ events }) => packChunkRuns(events),
  derive: async ({ id, events }) => {
    const session = Session.create(id, events, { version: 0, id, createdAt: 1 })
    return plain({ messages: session.deriveMessages(), nodes: session.surface.nodes, events: session.events })
  },
  write: async ({ root, compression, meta, batches }) =>
    mounted(root, compression, async (ctx) => {
      await writeBatches(ctx.sessionPersistence, meta, batches)
      return ctx.sessionPersistence.locate(meta).path
    }),
  list: async ({ root, compression }) =>
    mounted(root, compression, async (ctx) => plain(await ctx.sessionPersistence.list())),
  inspect: async ({ root, compression, id }) =>
    mounted(root, compression, async (ctx) => plain(await ctx.sessionPersistence.inspect(id))),
  load: async ({ root, compression, id }) =>
    mounted(root, compression, async (ctx) => plain(await ctx.sessionPersistence.load(id))),
  readFrom: async ({ root, compression, id, seq }) =>
    mounted(root, compression, async (ctx) => plain(await ctx.sessionPersistence.readFrom(id, seq))),
  // Resumes a stored session, appends through the live session, flushes and lets go.
  resume: async ({ root, compression, id, appends }) =>
    mounted(root, compression, async (ctx) => {
      const preparation = await ctx.sessionPersistence.prepare(id)
      const session = preparation.session
      const detach = ctx.sessions.enter(session)
      ctx.sessions.announce(session)
      for (const [type, data, options] of appends) session.append(type, data, options)
      await ctx.sessions.flush(session)
      const events = plain(session.events)
      detach()
      return { events, messages: plain(session.deriveMessages()) }
    }),
}

for await (const line of createInterface({ input: process.stdin })) {
  const { question, args } = JSON.parse(line)
  let answer
  try {
    answer = { ok: (await questions[question](args)) ?? null }
  } catch (error) {
    answer = { error: { name: error?.constructor?.name ?? 'Error', message: String(error?.message ?? error) } }
  }
  process.stdout.write(ascii(answer) + '\n')
}

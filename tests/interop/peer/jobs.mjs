// The original's side of the bench: one job per process, its figures as one JSON line.
// usage: node jobs.mjs JOB '{"root":...,"compression":...,...}'
import { performance } from 'node:perf_hooks'
import { Context } from '@deepseek-ai/cordis'
import SessionStore from '@deepseek-ai/dsh-session'
import Jsonl from '@deepseek-ai/dsh-session-persistence-jsonl'

const tick = () => new Promise((resolve) => setImmediate(resolve))
const seconds = (since) => (performance.now() - since) / 1000
const percentile = (sorted, p) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))]

async function mounted({ root, compression }, body) {
  const ctx = new Context()
  await ctx.plugin(SessionStore)
  const fiber = await ctx.plugin(Jsonl, { root, compression })
  const out = await body(ctx)
  await fiber.dispose()
  return out
}

const delta = (k) => ({ turn: 1, step: 1, chunk: { type: 'text-delta', index: 0, text: `token ${k % 997} ` } })

function open(ctx, id) {
  const session = ctx.sessions.create(id, { meta: { cwd: '/bench' } })
  session.append('turn/start', { turn: 1 })
  session.append('step/start', { turn: 1, step: 1 })
  return session
}

function turn(session, number) {
  session.append('turn/start', { turn: number })
  session.append('step/start', { turn: number, step: 1 })
  for (let k = 0; k < 22; k++)
    session.append('assistant/chunk', { turn: number, step: 1, chunk: { type: 'text-delta', index: 0, text: `token ${k} ` } })
  session.append('step/end', { turn: number, step: 1 })
  session.append('turn/end', { turn: number, reason: { kind: 'completed' } })
}

const jobs = {
  // `events` chunk events over `sessions` sessions, a yield every 100 appends, one flush at the end.
  stream: async (args) =>
    mounted(args, async (ctx) => {
      const open_ = Array.from({ length: args.sessions }, (_, k) => open(ctx, `s-${k}`))
      await Promise.all(open_.map((s) => ctx.sessions.flush(s)))
      const start = performance.now()
      let producing = 0
      for (let k = 0; k < args.events; ) {
        const from = performance.now()
        for (let j = 0; j < 100 && k < args.events; j++, k++) open_[k % open_.length].append('assistant/chunk', delta(k))
        producing += performance.now() - from
        await tick()
      }
      await Promise.all(open_.map((s) => ctx.sessions.flush(s)))
      return { producer_s: producing / 1000, total_s: seconds(start) }
    }),
  // every session: `turns` turns of 26 events, a flush after each; all sessions at once.
  turns: async (args) =>
    mounted(args, async (ctx) => {
      const all = Array.from({ length: args.sessions }, (_, k) => ctx.sessions.create(`s-${k}`, { meta: { cwd: '/bench' } }))
      for (const s of all) turn(s, 1)
      await Promise.all(all.map((s) => ctx.sessions.flush(s)))
      const start = performance.now()
      await Promise.all(
        all.map(async (s) => {
          for (let t = 2; t <= args.turns + 1; t++) {
            turn(s, t)
            await ctx.sessions.flush(s)
          }
        })
      )
      return { total_s: seconds(start), flushes: args.sessions * args.turns }
    }),
  // one event per flush, one session.
  single: async (args) =>
    mounted(args, async (ctx) => {
      const session = open(ctx, 's')
      await ctx.sessions.flush(session)
      const times = []
      for (let k = 0; k < args.events; k++) {
        const from = performance.now()
        session.append('feedback/record', { text: 'x'.repeat(60) })
        await ctx.sessions.flush(session)
        times.push((performance.now() - from) / 1000)
      }
      times.sort((a, b) => a - b)
      return { p50_s: percentile(times, 0.5), p99_s: percentile(times, 0.99) }
    }),
  // create a session and make its first event durable, one after the other.
  create: async (args) =>
    mounted(args, async (ctx) => {
      const times = []
      for (let k = 0; k < args.sessions; k++) {
        const from = performance.now()
        const session = ctx.sessions.create(`c-${k}`, { meta: { cwd: `/bench` } })
        session.append('turn/start', { turn: 1 })
        await ctx.sessions.flush(session)
        times.push((performance.now() - from) / 1000)
      }
      times.sort((a, b) => a - b)
      return { p50_s: percentile(times, 0.5), total_s: times.reduce((a, b) => a + b, 0) }
    }),
  inspect: async (args) =>
    mounted(args, async (ctx) => {
      const start = performance.now()
      const found = await ctx.sessionPersistence.inspect(args.id)
      return { total_s: seconds(start), events: found.events.length }
    }),
  tail: async (args) =>
    mounted(args, async (ctx) => {
      const start = performance.now()
      const found = await ctx.sessionPersistence.readFrom(args.id, args.seq)
      return { total_s: seconds(start), events: found.events.length }
    }),
  list: async (args) =>
    mounted(args, async (ctx) => {
      const start = performance.now()
      const found = await ctx.sessionPersistence.list()
      return { total_s: seconds(start), sessions: found.length }
    }),
}

const [, , job, text] = process.argv
const idle = process.memoryUsage.rss()
const figures = await jobs[job](JSON.parse(text))
console.log(JSON.stringify({ ...figures, peak_rss: process.resourceUsage().maxRSS * 1024, idle_rss: idle }))

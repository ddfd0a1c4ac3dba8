#!/usr/bin/env node
// A plugin that is not written in Go, over the published protocol. It lies in one
// folder with plugin.proto and goplugin.proto.
'use strict'

const path = require('node:path')
const grpc = require('@grpc/grpc-js')
const loader = require('@grpc/proto-loader')
const protobuf = require('protobufjs')

const cookie = 'c0f2c1d8a3b14f7d9a55e3f6b7a0e921'
if (process.env.SESS_PLUGIN_COOKIE !== cookie) {
  console.error('This program is a plugin of sess, which starts it.')
  process.exit(1)
}

const protos = ['plugin.proto', 'goplugin.proto'].map((name) => path.join(__dirname, name))
const api = grpc.loadPackageDefinition(loader.loadSync(protos, { keepCase: true }))
// The result of a call crosses as the bytes of this message.
const Result = protobuf.loadSync(protos[0]).lookupType('plugin.v1.Result')

const spec = {
  command: 'count',
  summary: 'Count things',
  verbs: [
    {
      name: 'words',
      summary: 'Count the words of a text',
      effect: 'read',
      args: [{ name: 'text', type: 'string', required: true, help: 'the text' }]
    },
    { name: 'sessions', summary: 'Count the conversations', effect: 'read' }
  ]
}

const streams = new Map() // by number: addresses, as the broker tells them
const waiting = new Map() // by number: who wants to know one first
let config = {}
let runtime = null // a client of the host's RuntimeService

// told notes where a stream is, address waits until that is known.
function told (info) {
  streams.set(info.service_id, info.network === 'unix' ? 'unix:' + info.address : info.address)
  waiting.get(info.service_id)?.(streams.get(info.service_id))
}

function address (id) {
  return new Promise((resolve) => streams.has(id) ? resolve(streams.get(id)) : waiting.set(id, resolve))
}

// call asks the host for something; the answer comes in pieces.
function call (method, params) {
  return new Promise((resolve, reject) => {
    const pieces = []
    const stream = runtime.Call()
    stream.on('data', (part) => {
      if (part.error) reject(part.error)
      else pieces.push(part.piece)
    })
    stream.on('error', (err) => reject({ code: 'unavailable', message: err.message }))
    stream.on('end', () => resolve(JSON.parse(Buffer.concat(pieces).toString())))
    stream.write({ head: { method } })
    stream.write({ piece: Buffer.from(JSON.stringify(params)) })
    stream.end()
  })
}

const verbs = {
  async words (args) {
    const text = args.find((word) => word !== '--')
    if (text === undefined) throw { code: 'usage', message: 'words: text is missing', hint: 'sess count words <text>' }
    const count = text.split(/\s+/).filter(Boolean).length
    return { text: `${count} ${config.unit}`, data: { count } }
  },
  async sessions () {
    const count = (await call('sessions.list', {})).length
    return { text: `${count} conversations`, data: { count } }
  }
}

async function answer (argv) {
  const [verb, ...args] = argv
  if (!Object.hasOwn(verbs, verb)) throw { code: 'usage', message: `unknown verb "${verb}"`, hint: 'sess help count' }
  return verbs[verb](args)
}

const service = {
  Describe (_, reply) {
    reply(null, { spec: Buffer.from(JSON.stringify(spec)), api: ['1.0'] })
  },
  async Configure ({ request }, reply) {
    config = JSON.parse(request.config)
    runtime = new api.plugin.v1.RuntimeService(await address(request.runtime_id), grpc.credentials.createInsecure())
    reply(null, {})
  },
  Dispatch (stream) {
    let argv = []
    stream.on('data', (part) => {
      if (part.call) argv = part.call.argv.map(String)
    })
    stream.on('end', async () => {
      try {
        const { text, data } = await answer(argv)
        const bytes = Result.encode({ text, data: Buffer.from(JSON.stringify(data)) }).finish()
        for (let at = 0; at < bytes.length; at += 256 << 10) stream.write({ piece: bytes.slice(at, at + (256 << 10)) })
        stream.write({ end: {} })
      } catch (err) {
        stream.write({ error: { code: err.code || 'internal', message: err.message, hint: err.hint, details: err.details } })
      }
      stream.end()
    })
  }
}

const server = new grpc.Server()
server.addService(api.plugin.v1.PluginService.service, service)
server.addService(api.plugin.GRPCBroker.service, {
  StartStream (stream) {
    stream.on('data', told)
    stream.on('end', () => stream.end())
  }
})
server.addService(api.plugin.GRPCController.service, {
  Shutdown (_, reply) {
    reply(null, {})
    server.tryShutdown(() => process.exit(0))
  }
})

const socket = path.join(process.env.PLUGIN_UNIX_SOCKET_DIR, 'plugin.sock')
server.bindAsync('unix:' + socket, grpc.ServerCredentials.createInsecure(), (err) => {
  if (err) {
    console.error(err.message)
    process.exit(1)
  }
  console.log(`1|1|unix|${socket}|grpc`)
})

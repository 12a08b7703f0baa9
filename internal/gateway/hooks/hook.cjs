'use strict'
// quotactl meter loads this by NODE_OPTIONS: TLS connections to metered hosts go to the meter, and
// the run's CA is trusted beside what the program names. An error leaves Node as it was.
try {
  const tls = require('tls')
  const { domainToASCII } = require('url')
  const env = Object.assign({}, process.env)
  const ca = require('fs').readFileSync(env.QUOTACTL_METER_CA)
  const direct = /^(.*):(\d+)$/.exec(env.QUOTACTL_METER_DIRECT || '')
  const hosts = (env.QUOTACTL_METER_HOSTS || '').split(',')
  const mark = Symbol.for('quotactl.meter') // another meter's hook has read the same variables

  const ascii = host => domainToASCII(String(host)).replace(/\.$/, '')
  const metered = name => name !== '' && !/^[\d.]+$|:/.test(name) && hosts.some(h => name === h || (h[0] === '*' && name.endsWith(h.slice(1))))
  const change = args => {
    const isOptions = a => a !== null && typeof a === 'object'
    if (!isOptions(args[0]) && isNaN(args[0])) return args // the path of a socket
    const o = isOptions(args[0]) ? {} : { port: args[0], host: typeof args[1] === 'string' ? args[1] : undefined }
    for (const a of args.slice(0, 3)) if (isOptions(a)) Object.assign(o, a)
    if (o.ca) o.ca = [].concat(o.ca, ca)
    if (o.secureContext) o.secureContext.context.addCACert(ca)
    if (direct && Number(o.port) === 443 && !o.socket && !o.path && metered(ascii(o.host)) &&
        (!o.servername || metered(ascii(o.servername))) && process.geteuid() === Number(env.QUOTACTL_METER_UID)) {
      o.servername = o.servername || ascii(o.host)
      Object.assign(o, { [mark]: true, host: direct[1], port: Number(direct[2]), localAddress: undefined, lookup: undefined })
    }
    return [o].concat(args.slice(1).filter(a => typeof a === 'function'))
  }
  const connect = tls.connect
  if (!tls[mark]) {
    Object.defineProperty(tls, mark, { value: true })
    tls.connect = function (...args) {
      try { args = change(args) } catch (e) {}
      const socket = connect.apply(this, args)
      // http2-wrapper compares the port with that of its origin.
      if (args[0] && args[0][mark]) Object.defineProperty(socket, 'remotePort', { value: 443, configurable: true })
      return socket
    }
    require('module').syncBuiltinESMExports()
  }
} catch (e) {}

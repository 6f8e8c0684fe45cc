// Sends lines with the client of Loki for Node.js. Arguments: address, protobuf or json, number of lines.
const winston = require("winston");
const LokiTransport = require("winston-loki");

const [host, form, count] = process.argv.slice(2);
const transport = new LokiTransport({
  host,
  json: form === "json",
  labels: { job: form },
  format: winston.format.printf((info) => info.message),
  interval: 1,
  replaceTimestamp: false,
  onConnectionError: (error) => {
    console.error(error);
    process.exit(1);
  },
});
const logger = winston.createLogger({ transports: [transport] });
for (let n = 0; n < Number(count); n++) {
  logger.info({ message: `größe ${n}`, labels: { kind: `k${n % 3}` }, timestamp: 1795284000000 + n });
}
transport.flush().then(() => process.exit(0));

// Makes vectors.json anew, with nothing of ours: the numbers and strings of RFC 8785 are those of JavaScript's own JSON.
//   node docs/signing/make.mjs > docs/signing/vectors.json
import { createHmac } from "node:crypto";

// Names are sorted by their UTF-16 code units, as JavaScript sorts strings.
function canonical(value) {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const members = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical(value[name])}`);
  return `{${members.join(",")}}`;
}

const secret = "nxs_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

// What is on the wire, in the words of somebody who writes JSON in another way than we do.
const requests = {
  "no parameters": `{"jsonrpc":"2.0","method":"rpc.version","id":1,"auth":{"timestamp":1700000000}}`,
  "a key and a nonce": `{"auth": {"nonce": "n-1", "key_id": "ci", "timestamp": 1700000000}, "id": "a", "params": {"content": "hello"}, "method": "send", "jsonrpc": "2.0"}`,
  "a notification": `{"jsonrpc":"2.0","method":"send","params":{"content":"x","agent_id":"main"},"id":null,"auth":{"timestamp":1700000000,"nonce":"1"}}`,
  "numbers": `{"jsonrpc":"2.0","method":"m","id":-7,"params":{"n":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001,-0,0.0,1e21,1e20,1e-7,0.000001,9007199254740991,-9007199254740991,100,1.5E+2,5e-324,1.7976931348623157e308]},"auth":{"timestamp":1700000000}}`,
  "strings": `{"jsonrpc":"2.0","method":"m","id":1,"params":{"s":"\\u20ac$\\u000F\\u000aA'\\u0042\\u0022\\u005c\\\\\\"\\/\\b\\f\\r\\t\\u007f\\u2028\\ud83d\\ude00é"},"auth":{"timestamp":1700000000}}`,
  "names in the order of UTF-16": `{"jsonrpc":"2.0","method":"m","id":1,"params":{"\\u20ac":"Euro","\\r":"return","\\ufb33":"dalet","1":"one","\\ud83d\\ude00":"face","\\u0080":"control","ö":"o","10":"ten","9":"nine","":"nothing","A":"A","a":"a"},"auth":{"timestamp":1700000000}}`,
  "depth": `{"jsonrpc":"2.0","method":"m","id":1,"params":{"b":[{"z":null,"a":[[],{},[{"y":false,"x":true}]]}],"a":{"d":{"c":{}}}},"auth":{"timestamp":1700000000,"key_id":"deep"}}`,
};

const vectors = Object.entries(requests).map(([name, text]) => {
  const form = canonical(JSON.parse(text));
  const signature = createHmac("sha256", secret).update(`jsonrpc-hmac-v1\n${form}`).digest("base64");
  return { name, secret, request: text, canonical: form, signature };
});
console.log(JSON.stringify(vectors, null, 2));

// An owner's first hour by what @hey-api/openapi-ts makes; prints what came of it.
import {
  createDataset,
  estimateFrechetMean,
  estimateRobustPca,
  planFrechetMean,
  planWorkload,
  readJob,
  uploadDataset,
} from "./generated";
import { client } from "./generated/client.gen";
import type { DatasetView, FrechetMeanEstimate, NewHandle, RobustPcaRequest } from "./generated";

declare const process: { env: Record<string, string | undefined> };
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;

client.setConfig({ baseUrl: process.env.PRIVEST_URL, auth: process.env.PRIVEST_KEY });

async function main() {
  const { data: dataset } = await uploadDataset({
    body: {
      file: new File(["a,b\n0.1,0.2\n0.3,-0.1\n-0.2,0.4\n"], "rows.csv", { type: "text/csv" }),
      schema: { kind: "points", manifold: { name: "euclidean", dim: 2 }, radius: 1 },
    },
  });
  if (!dataset) throw new Error("no dataset");
  const question = { dataset: { id: dataset.id }, privacy: { epsilon: 0.5, delta: 1e-6 } };

  const { data: plan } = await planFrechetMean({ body: question });
  const { data: asked } = await estimateFrechetMean({
    body: question,
    headers: { "idempotency-key": "once", prefer: "wait=240" },
  });
  const { data: job } = await readJob({ path: { job_id: asked!.id } });
  // Of all kinds together a job has what all of them have; its kind tells the rest.
  if (job?.kind !== "frechet-mean") throw new Error("of another kind");
  const mean: FrechetMeanEstimate["point"] | undefined = job.estimate?.point;

  const { error } = await estimateFrechetMean({
    body: { ...question, dataset: { id: "ds_none" } },
    headers: { "idempotency-key": "none" },
  });
  console.log(
    JSON.stringify({
      dataset: dataset.id,
      n: dataset.n,
      schema: dataset.schema,
      epsilon: plan?.privacy.epsilon,
      state: job.state,
      mean,
      problem: error?.type,
    }),
  );
}

// What would be lost without a schema's care shows here, as a fault that does not come.
export const sameForBoth: Same<DatasetView["schema"], NewHandle["schema"]> = true;
export async function refused(body: RobustPcaRequest) {
  // @ts-expect-error a question needs its key
  await estimateRobustPca({ body });
  const headers = { "idempotency-key": "x" };
  await estimateRobustPca({ body, headers });
  // @ts-expect-error a mean has no rank
  await estimateFrechetMean({ body: { dataset: { id: "x" }, privacy: { epsilon: 1 }, rank: 2 }, headers });
  // @ts-expect-error there is no such kind of questions
  await planWorkload({ body: { questions: [{ kind: "none", body }] } });
  // @ts-expect-error a question about a subspace needs its rank
  await planWorkload({ body: { questions: [{ kind: "robust-pca", body: { dataset: { id: "x" }, privacy: { epsilon: 1 } } }] } });
  // @ts-expect-error a handle is no file
  await createDataset({ body: { file: new File([], "rows.csv"), schema: { kind: "vectors", dim: 2 } } });
  // @ts-expect-error a file is no handle
  await uploadDataset({ body: { uri: "files:a.csv", schema: { kind: "vectors", dim: 2 } } });
}

main();

// An owner's first hour by the types of openapi-typescript; prints what came of it.
import createClient from "openapi-fetch";
import type { components, paths } from "./generated";

declare const process: { env: Record<string, string | undefined> };
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;
type Schemas = components["schemas"];

const client = createClient<paths>({
  baseUrl: process.env.PRIVEST_URL,
  headers: { Authorization: `Bearer ${process.env.PRIVEST_KEY}` },
});

async function main() {
  const { data: dataset } = await client.POST("/v1/datasets/upload", {
    body: {
      file: "a,b\n0.1,0.2\n0.3,-0.1\n-0.2,0.4\n",
      schema: { kind: "points", manifold: { name: "euclidean", dim: 2 }, radius: 1 },
    },
    bodySerializer(body) {
      const form = new FormData();
      form.set("file", new Blob([body.file], { type: "text/csv" }), "rows.csv");
      form.set("schema", JSON.stringify(body.schema));
      return form;
    },
  });
  if (!dataset) throw new Error("no dataset");
  const about = { id: dataset.id };

  const { data: plan } = await client.POST("/v1/estimates/frechet-mean/plan", {
    body: { dataset: about, privacy: { epsilon: 0.5, delta: 1e-6 } },
  });
  const question = { dataset: about, privacy: { epsilon: 0.5, delta: 1e-6 } };
  const { data: asked } = await client.POST("/v1/estimates/frechet-mean", {
    params: { header: { "idempotency-key": "once", prefer: "wait=240" } },
    body: question,
  });
  const { data: job } = await client.GET("/v1/jobs/{job_id}", { params: { path: { job_id: asked!.id } } });
  // Of all kinds together a job has what all of them have; its kind tells the rest.
  if (job?.kind !== "frechet-mean") throw new Error("of another kind");
  const mean: Schemas["FrechetMeanEstimate"]["point"] | undefined = job.estimate?.point;

  const { error } = await client.POST("/v1/estimates/frechet-mean", {
    params: { header: { "idempotency-key": "none" } },
    body: { ...question, dataset: { id: "ds_none" } },
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
export const sameForBoth: Same<Schemas["DatasetView"]["schema"], Schemas["NewHandle"]["schema"]> = true;
export const kindsOfDatasets: Same<
  Schemas["NewHandle"]["schema"]["kind"],
  "points" | "vectors" | "partial-vectors" | "labelled" | "table"
> = true;
export async function refused(body: Schemas["RobustPCARequest"]) {
  // @ts-expect-error a question needs its key
  await client.POST("/v1/estimates/robust-pca", { body });
  const header = { "idempotency-key": "x" };
  await client.POST("/v1/estimates/robust-pca", { params: { header }, body });
  // @ts-expect-error a question about a subspace needs its rank
  await client.POST("/v1/estimates/robust-pca", { params: { header }, body: { ...body, rank: undefined } });
  // @ts-expect-error an upload takes no schema of an unknown kind
  await client.POST("/v1/datasets/upload", { body: { file: "", schema: { kind: "none" } } });
  // @ts-expect-error a file and a handle are kept apart
  await client.POST("/v1/datasets/upload", { body: { uri: "files:a.csv", schema: { kind: "vectors", dim: 2 } } });
}

main();

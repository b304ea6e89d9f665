import asyncio

from langchain_openai import ChatOpenAI
from openai import OpenAI
from ragas import SingleTurnSample
from ragas.llms import LangchainLLMWrapper
from ragas.metrics import AspectCritic, NonLLMContextPrecisionWithReference
from steps import KEY, MODEL_AT, QUESTION, URL, did

client = OpenAI(base_url=URL, api_key=KEY)
completion = client.chat.completions.create(model=MODEL_AT, messages=[{"role": "user", "content": QUESTION}])
passages = completion.ragkv["passages"]
best = max(passages, key=lambda passage: passage["score"])
sample = SingleTurnSample(
    user_input=QUESTION,
    response=completion.choices[0].message.content,
    retrieved_contexts=[passage["text"] for passage in passages],
    reference_contexts=[best["text"]],
)
precision = asyncio.run(NonLLMContextPrecisionWithReference().single_turn_ascore(sample))
did("answers measured", precision > 0.99)

# A small model writes no JSON of itself: the form is given.
verdict = {"reason": {"type": "string", "maxLength": 80}, "verdict": {"enum": [0, 1]}}
schema = {"type": "object", "properties": verdict, "required": list(verdict), "additionalProperties": False}
form = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": schema}}
model = ChatOpenAI(
    model=MODEL_AT,
    base_url=URL,
    api_key=KEY,
    extra_body={"retrieval": False},
    model_kwargs={"response_format": form},
    max_tokens=200,
)
critic = AspectCritic(
    name="names_a_person", definition="Does the answer name a person?", llm=LangchainLLMWrapper(model)
)
did("judge", asyncio.run(critic.single_turn_ascore(sample)) in {0, 1})

"""Descriptions of the fields of OpenAI's types, by component of the OpenAPI document."""

MODEL = "Id of the model, as listed by `/v1/models`. MODEL@COLLECTION answers from that collection."
CREATED = "Time of creation in Unix seconds."
NO_LOGPROBS = "Log probabilities are not returned."
OUTDATED = (
    "Not part of OpenAI's API: the reason why the text is from an earlier file than the document's present one, which has not "
    "been read yet or could not be read; otherwise null."
)
CITED = {
    "file_id": "Id of the cited file.",
    "filename": "Name of the cited file.",
    "outdated": OUTDATED,
}
PAGE = {
    "has_more": "Whether there are more items after this page.",
    "first_id": "Id of the first item; null on an empty page.",
    "last_id": "Id of the last item; null on an empty page.",
}
WHOLE_PAGE = {"has_more": "Always false: all items are returned.", "next_page": "Always null."}
FOUND = {
    "file_id": "Id of the file.",
    "filename": "Name of the file.",
    "score": "Relevance score, comparable only within one search. It is not a probability and may exceed 1.",
    "attributes": "Attributes of the file.",
    "outdated": OUTDATED,
}
RETRIEVAL = {
    "max_num_results": "Maximum number of passages.",
    "filters": "Use only files whose attributes match this filter.",
    "ranking_options": "Ranking options; only the defaults are supported.",
}
SENT_BACK = "Accepted so that earlier answers can be sent back; no effect on the answer."
CHUNKING = "Chunking strategy; only `auto` is supported."
USAGE = {"total_tokens": "Tokens of the prompt and the answer."}
OUTPUT_STATUS = "Status of the item."

OPENAI_FIELDS: dict[str, dict[str, str]] = {
    "ErrorBody": {"error": "The error."},
    "ErrorFacts": {
        "message": "Explanation of the error and, where possible, how to solve it.",
        "type": "Type of the error.",
        "param": "Path of the invalid field in the request, if there is one.",
        "code": "Code of the error, if there is one.",
    },
    "ModelPage": {"data": "Models."},
    "ModelView": {
        "id": "Id of the model: MODEL, or MODEL@COLLECTION.",
        "created": CREATED,
        "owned_by": "Always `ragkv`.",
    },
    "ChatBody": {
        "model": MODEL,
        "messages": "Messages of the conversation, oldest first. The last one is the question.",
        "vector_store_ids": "Vector store to answer from, by id or name, as an alternative to MODEL@COLLECTION.",
        "max_tokens": "Maximum number of tokens of the answer. Same as `max_completion_tokens`.",
        "max_completion_tokens": "Maximum number of tokens of the answer.",
        "stream": "Whether to stream the answer as server-sent events.",
        "stream_options": "Options for streaming. Requires `stream`.",
        "response_format": "Format of the answer; only text is supported.",
        "modalities": "Types of output; only text is supported.",
    },
    "ChatMessage": {
        "role": "Author of the message.",
        "content": "Text of the message, or its text parts.",
        "annotations": SENT_BACK,
        "citations": SENT_BACK,
    },
    "TextPart": {"type": "Type of the part; only `text` is supported.", "text": "Text of the part."},
    "StreamOptions": {
        "include_usage": "Whether to send the token counts in an additional last chunk without choices.",
        "continuous_usage_stats": "Field of vLLM's API; no effect, since the token counts come in the last chunk.",
    },
    "TextFormat": {"type": "Type of the format; only `text` is supported."},
    "ChatCompletion": {
        "created": CREATED,
        "model": "Model as requested.",
        "choices": "The answer, as the only choice.",
        "usage": "Token counts.",
        "ragkv": "Details that are not part of OpenAI's API.",
    },
    "Choice": {
        "message": "Message with the answer.",
        "finish_reason": "`stop`: the answer is complete. `length`: it reached the maximum number of tokens.",
        "index": "Always 0.",
        "logprobs": NO_LOGPROBS,
    },
    "AnswerMessage": {
        "content": "Text of the answer.",
        "citations": "Citations in the order of the answer.",
        "role": "Always `assistant`.",
        "refusal": "Always null.",
    },
    "FileCitation": {
        **CITED,
        "answer_start": "Offset of the first supported character in the answer.",
        "answer_end": "Offset after the last supported character in the answer.",
        "chunk_id": "Id of the chunk.",
        "title": "Title of the document.",
        "page": "Page number, starting from 1; null for formats without pages.",
        "page_label": "Page as a reader calls it: `page 3`, `slide 3`, `sheet 3`; null for formats without pages.",
        "start": "Offset of the first character in the document's text.",
        "end": "Offset after the last character in the document's text.",
        "quote": "Text of the document at this place.",
        "page_text": "Path of the text of its page, slide or sheet. Requests are refused (422) once the words at this place have changed.",
        "page_boxes": "Path of the boxes over it on the picture of its page, with the same refusal; null where pages have no pictures.",
    },
    "CompletionUsage": {
        "prompt_tokens": "Tokens of the prompt.",
        "completion_tokens": "Tokens of the answer.",
        "prompt_tokens_details": "Details of the prompt tokens.",
        **USAGE,
    },
    "PromptDetails": {"cached_tokens": "Tokens found in the engine's cache or stitched from stored KV."},
    "AnswerFacts": {
        "answer_id": "Id of the answer, for feedback: also the last part of the id of the completion or response.",
        "vector_store_id": "Id of the vector store that was searched.",
        "passages": "Passages of the prompt.",
        "timings": "Durations of the answer.",
        "usage": "Token counts by origin.",
        "cached_answer": "Cache entry that the answer was taken from; null if the answer was generated.",
    },
    "ResponseBody": {
        "model": MODEL,
        "input": "The question, or a conversation whose last message is the question.",
        "instructions": "Additional instructions for the answer.",
        "tools": "The file search tool, with the vector store to answer from.",
        "tool_choice": "Choice of the tool; no effect, since every response begins with a file search.",
        "include": "Additional output: `file_search_call.results` adds the passages to the file search.",
        "max_output_tokens": "Maximum number of tokens of the answer.",
        "stream": "Whether to stream the response as server-sent events.",
        "text": "Text options; only plain text is supported.",
        "truncation": "Truncation strategy; only `disabled` is supported.",
    },
    "InputItem": {
        "type": "Type of the item.",
        "role": "Author of the message. Required for messages.",
        "content": "Text of the message, or its text parts.",
        "queries": SENT_BACK,
        "results": SENT_BACK,
    },
    "InputText": {
        "type": "Type of the part.",
        "text": "Text of the part.",
        "annotations": SENT_BACK,
        "logprobs": SENT_BACK,
    },
    "FileSearch": {"type": "Type of the tool; only `file_search` is supported.", **RETRIEVAL},
    "FilterBody": {
        "type": "Comparison operator, or `and` or `or` to combine filters.",
        "key": "Attribute to compare.",
        "value": "Value to compare with; a list for `in` and `nin`.",
        "filters": "Filters to combine with `and` or `or`.",
    },
    "Ranking": {
        "ranker": "Ranker; only `auto` is supported.",
        "score_threshold": "Minimum score. Only 0 is supported: passages are not filtered by score.",
    },
    "ChosenTool": {"type": "Type of the tool; only `file_search` is supported."},
    "TextConfig": {"format": "Format of the answer; only text is supported."},
    "ResponseObject": {
        "created_at": CREATED,
        "model": "Model as requested.",
        "status": "Status of the response.",
        "output": "The file search and the message with the answer.",
        "usage": "Token counts; null until the response is finished.",
        "error": "Error that ended the response; null without one.",
        "incomplete_details": "Reason why the response is incomplete; null for a complete one.",
        "instructions": "Instructions as requested.",
        "max_output_tokens": "Maximum number of tokens as requested.",
        "metadata": "Metadata as requested.",
        "parallel_tool_calls": "As requested; no effect on the answer.",
        "previous_response_id": "Always null.",
        "store": "Always false: responses are not stored.",
        "temperature": "Always 0: decoding is greedy.",
        "text": "Text options of the answer.",
        "tool_choice": "Choice of the tool as requested.",
        "tools": "Tools as requested.",
        "top_p": "As requested; no effect on the answer.",
        "truncation": "Always `disabled`.",
        "ragkv": "Details that are not part of OpenAI's API.",
    },
    "FileSearchCall": {
        "type": "Always `file_search_call`.",
        "queries": "Queries of the search.",
        "status": OUTPUT_STATUS,
        "results": "Passages, best first; null unless requested with `include`.",
    },
    "FileSearchResult": {**FOUND, "text": "Text of the passage."},
    "OutputMessage": {
        "type": "Always `message`.",
        "status": OUTPUT_STATUS,
        "content": "The text of the answer, as the only part.",
        "role": "Always `assistant`.",
    },
    "OutputText": {
        "text": "Text of the answer.",
        "annotations": "Citations of files, in the order of the text.",
        "logprobs": NO_LOGPROBS,
        "type": "Always `output_text`.",
    },
    "Annotation": {
        **CITED,
        "index": "Offset in the text at which the cited passage ends.",
        "type": "Always `file_citation`.",
    },
    "ResponseUsage": {
        "input_tokens": "Tokens of the prompt.",
        "input_tokens_details": "Details of the input tokens.",
        "output_tokens": "Tokens of the answer.",
        "output_tokens_details": "Details of the output tokens.",
        **USAGE,
    },
    "InputDetails": {
        "cached_tokens": "Tokens found in the engine's cache or stitched from stored KV.",
        "cache_write_tokens": "Always 0.",
    },
    "OutputDetails": {"reasoning_tokens": "Always 0: reasoning is not counted separately."},
    "ResponseFailure": {"message": "Explanation of the error.", "code": "Code of the error."},
    "Incomplete": {"reason": "Always `max_output_tokens`: the answer reached the maximum number of tokens."},
    "FileForm": {"file": "File to upload.", "purpose": "Purpose of the file. Both values have the same effect."},
    "FilePage": {"data": "Files.", **PAGE},
    "FileObject": {
        "bytes": "Size of the file in bytes.",
        "created_at": CREATED,
        "filename": "Name of the file.",
        "purpose": "Purpose of the file.",
        "status": "Always `processed`.",
    },
    "FileDeleted": {"id": "Id of the deleted file.", "deleted": "Always true."},
    "NewVectorStore": {
        "name": "Name of the vector store, unique within the tenant. A name is generated if it is omitted.",
        "file_ids": "Ids of files to attach.",
        "chunking_strategy": CHUNKING,
    },
    "VectorStoreChange": {"name": "New name, unique within the tenant."},
    "VectorStorePage": {"data": "Vector stores.", **PAGE},
    "VectorStore": {
        "name": "Name of the vector store.",
        "created_at": CREATED,
        "status": "`in_progress` while files are being ingested, else `completed`.",
        "file_counts": "Number of files by status.",
        "usage_bytes": "Size of the files in bytes.",
        "metadata": "Always empty.",
    },
    "FileCounts": {
        "in_progress": "Files waiting for or in ingestion.",
        "completed": "Files that can be searched.",
        "failed": "Files that could not be ingested.",
        "cancelled": "Files of a batch that are no longer attached.",
        "total": "All files.",
    },
    "AutoChunking": {"type": "Type of the strategy; only `auto` is supported."},
    "OtherChunking": {"type": "Type of the strategy; always `other`."},
    "VectorStoreDeleted": {"id": "Id of the deleted vector store.", "deleted": "Always true."},
    "StoreSearchBody": {"query": "A query, or several queries whose results are merged.", **RETRIEVAL},
    "SearchPage": {"search_query": "Queries as requested.", "data": "Passages, best first.", **WHOLE_PAGE},
    "SearchResult": {**FOUND, "content": "Text of the passage."},
    "PassageText": {"text": "Text of the passage.", "type": "Always `text`."},
    "StoreFilePage": {"data": "Files.", **PAGE},
    "StoreFile": {
        "id": "Id of the file, or of the document if it was uploaded to the collection directly.",
        "created_at": "Time at which the file was attached, in Unix seconds.",
        "status": "Status of the file: `completed` as soon as it can be searched.",
        "usage_bytes": "Size of the file in bytes.",
        "last_error": "Reason for the failure; null unless `status` is `failed`.",
        "attributes": "Attributes of the file: the metadata of its document.",
        "outdated": OUTDATED,
        "chunking_strategy": "Chunking strategy; always `other`.",
    },
    "LastError": {"message": "Explanation of the failure.", "code": "Always `invalid_file`."},
    "NewStoreFile": {
        "file_id": "Id of the file.",
        "attributes": "Attributes of the file. If it is already attached, they replace its attributes.",
        "chunking_strategy": CHUNKING,
    },
    "AttributesChange": {"attributes": "New attributes, which replace all existing ones."},
    "StoreFileDeleted": {"id": "Id of the detached file.", "deleted": "Always true."},
    "ContentPage": {"data": "Texts of the chunks, in order.", **WHOLE_PAGE},
    "TextOfFile": {"text": "Text of the chunk.", "type": "Always `text`."},
    "NewFileBatch": {
        "file_ids": "Ids of the files, which all get the same attributes.",
        "files": "Files with attributes of their own.",
        "attributes": "Attributes of all files in `file_ids`.",
        "chunking_strategy": CHUNKING,
    },
    "FileBatch": {
        "created_at": CREATED,
        "status": "Status of the batch.",
        "file_counts": "Number of files by status.",
    },
}
OPENAI_COMMON = {
    "object": "Type of the object.",
    "vector_store_id": "Id of the vector store.",
}
"""Descriptions of fields that mean the same in every type."""

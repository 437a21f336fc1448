#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

/// A message between the server and a worker.
struct WorkerMessage {
  enum class Kind : std::int64_t {
    text,         ///< to a worker: the options as JSON, a line's end and the text
    cancel,       ///< to a worker: nobody waits for the text any more
    models,       ///< from a worker that is ready: a description of its models, as JSON
    cannot_open,  ///< from one that ends: its exit code (the number) and why
    alive,        ///< from one that computes, now and then
    growing,      ///< the best translation so far, as a JSON string
    finished,     ///< a text's result, as a JSON object
    refused,      ///< a mistake of the client
    failed,
    cancelled
  };
  Kind kind = Kind::alive;
  std::int64_t number = 0;  ///< of the text
  std::string bytes = {};
};

std::string to_bytes(WorkerMessage::Kind kind, std::int64_t number, std::string_view bytes);
/// Takes a message out of the front of the bytes; nothing if they do not have a whole one.
std::optional<WorkerMessage> take_message(std::string& received);

}  // namespace heddle

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "serving/requests/translation_request.hpp"

namespace heddle {

/// The messages between the server and a worker. Each has a number, that of a text, and bytes.
enum class WorkerMessage : std::int64_t {
  text,         ///< to a worker: options and a line, see text_bytes
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

std::string to_bytes(WorkerMessage message, std::int64_t number, std::string_view bytes);
/// Calls take(message, number, bytes) for each message that was received whole, and erases these.
void take_messages(std::string& received,
                   std::function<void(WorkerMessage, std::int64_t, std::string_view)> const& take);

/// The bytes of WorkerMessage::text, between copies of one program.
std::string text_bytes(ServedOptions const& options, std::string_view line);
/// Sets `options`, and returns the line.
std::string_view read_text(std::string_view bytes, ServedOptions& options);

}  // namespace heddle

#include "serving/workers/worker_message.hpp"

#include <cstring>

namespace heddle {
namespace {

struct MessageHead {
  WorkerMessage::Kind kind;
  std::int64_t number;
  std::uint64_t bytes;
};

}  // namespace

std::string to_bytes(WorkerMessage::Kind kind, std::int64_t number, std::string_view bytes) {
  MessageHead const head{kind, number, bytes.size()};
  std::string message(reinterpret_cast<char const*>(&head), sizeof head);
  message += bytes;
  return message;
}

std::optional<WorkerMessage> take_message(std::string& received) {
  MessageHead head{};
  if (received.size() < sizeof head) {
    return std::nullopt;
  }
  std::memcpy(&head, received.data(), sizeof head);
  if (received.size() - sizeof head < head.bytes) {
    return std::nullopt;
  }
  WorkerMessage message{head.kind, head.number, received.substr(sizeof head, head.bytes)};
  received.erase(0, sizeof head + head.bytes);
  return message;
}

}  // namespace heddle

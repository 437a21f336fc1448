#include "serving/workers/worker_message.hpp"

#include <cstring>

namespace heddle {
namespace {

struct MessageHead {
  WorkerMessage message;
  std::int64_t number;
  std::uint64_t bytes;
};

template <class Value>
void put(std::string& bytes, Value const& value) {
  bytes.append(reinterpret_cast<char const*>(&value), sizeof value);
}
void put(std::string& bytes, std::string const& text) {
  put(bytes, text.size());
  bytes += text;
}

template <class Value>
void take(std::string_view& bytes, Value& value) {
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
}
void take(std::string_view& bytes, std::string& text) {
  std::size_t size = 0;
  take(bytes, size);
  text = bytes.substr(0, size);
  bytes.remove_prefix(size);
}

}  // namespace

std::string to_bytes(WorkerMessage message, std::int64_t number, std::string_view bytes) {
  std::string all;
  put(all, MessageHead{message, number, bytes.size()});
  all += bytes;
  return all;
}

void take_messages(std::string& received,
                   std::function<void(WorkerMessage, std::int64_t, std::string_view)> const& take_one) {
  std::string_view rest = received;
  while (rest.size() >= sizeof(MessageHead)) {
    std::string_view bytes = rest;
    MessageHead head{};
    take(bytes, head);
    if (bytes.size() < head.bytes) {
      break;
    }
    take_one(head.message, head.number, bytes.substr(0, head.bytes));
    rest = bytes.substr(head.bytes);
  }
  received.erase(0, received.size() - rest.size());
}

std::string text_bytes(ServedOptions const& options, std::string_view line) {
  std::string bytes;
  ServedOptions::for_each(options, [&](char const*, auto const& value) { put(bytes, value); });
  bytes += line;
  return bytes;
}

std::string_view read_text(std::string_view bytes, ServedOptions& options) {
  ServedOptions::for_each(options, [&](char const*, auto& value) { take(bytes, value); });
  return bytes;
}

}  // namespace heddle

#include <algorithm>
#include <heddle/core/base/error.hpp>
#include <heddle/core/parallel/text_messages.hpp>
#include <limits>
#include <span>

namespace heddle {
namespace {

Tensor borrowed(std::vector<std::int32_t>& words) {
  return Tensor::borrow(words.data(), DType::int32, {std::ssize(words)}, MemorySpace::host);
}

std::int32_t length_of(std::string const& text) {
  if (text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw DataError("a message between ranks has more than 2 GiB; lines that are computed together must be fewer");
  }
  return static_cast<std::int32_t>(text.size());
}

}  // namespace

OutgoingText::OutgoingText(Communicator const& world, std::string const& text, int to, int tag)
    : length_{length_of(text)}, words_((text.size() + 3) / 4 + 1) {
  std::ranges::copy(std::as_bytes(std::span(text)), std::as_writable_bytes(std::span(words_)).begin());
  header_ = world.start_send(borrowed(length_), to, tag);
  body_ = world.start_send(borrowed(words_), to, tag);
}

void OutgoingText::wait() {
  header_.wait();
  body_.wait();
}

bool IncomingTexts::progress() {
  if (!transfer_.progress()) {
    return false;
  }
  if (words_.empty()) {
    start_body();
    return transfer_.progress();
  }
  return true;
}

std::string IncomingTexts::take() {
  transfer_.wait();
  if (words_.empty()) {
    start_body();
    transfer_.wait();
  }
  std::string text(static_cast<std::size_t>(length_.front()), '\0');
  std::copy_n(std::as_bytes(std::span(words_)).begin(), text.size(), std::as_writable_bytes(std::span(text)).begin());
  words_.clear();
  return text;
}

void IncomingTexts::start() {
  transfer_ = world_.start_receive(borrowed(length_), from_, tag_);
}

void IncomingTexts::start_body() {
  words_.resize((static_cast<std::size_t>(length_.front()) + 3) / 4 + 1);
  transfer_ = world_.start_receive(borrowed(words_), from_, tag_);
}

}  // namespace heddle

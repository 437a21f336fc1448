#include <heddle/core/parallel/host_values.hpp>

namespace heddle {

namespace {

using Words = std::vector<std::int32_t>;

std::size_t words_for(std::size_t bytes) {
  return (bytes + sizeof(std::int32_t) - 1) / sizeof(std::int32_t);
}

/// The bytes as the element type that every communicator moves, the last word filled up with zeros; at least one word,
/// because no tensor is empty.
Words words_of(std::span<std::byte const> bytes) {
  Words words(std::max<std::size_t>(words_for(bytes.size()), 1));
  std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(words)).begin());
  return words;
}

/// A handle to them, where they are.
Tensor tensor_of(Words& words) {
  return Tensor::borrow(words.data(), DType::int32, {static_cast<std::int64_t>(words.size())}, MemorySpace::host);
}

}  // namespace

void broadcast_bytes(Communicator const& group, std::span<std::byte> bytes, int root) {
  if (group.size() == 1) {
    return;
  }
  Words words = words_of(bytes);
  group.broadcast(tensor_of(words), root);
  std::copy_n(std::as_bytes(std::span(words)).begin(), bytes.size(), bytes.begin());
}

void send_bytes(Communicator const& group, std::span<std::byte const> bytes, int to) {
  Words words = words_of(bytes);
  group.send(tensor_of(words), to);
}

void receive_bytes(Communicator const& group, std::span<std::byte> bytes, int from) {
  Words words(std::max<std::size_t>(words_for(bytes.size()), 1));
  group.receive(tensor_of(words), from);
  std::copy_n(std::as_bytes(std::span(words)).begin(), bytes.size(), bytes.begin());
}

std::vector<std::byte> gather_bytes(Communicator const& group, std::span<std::byte const> own) {
  if (group.size() == 1) {
    return {own.begin(), own.end()};
  }
  Words words = words_of(own);
  Words received(words.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(tensor_of(words), tensor_of(received));
  auto const bytes = std::as_bytes(std::span(received));
  std::vector<std::byte> result;
  for (std::size_t begin = 0; begin < bytes.size(); begin += words.size() * sizeof(std::int32_t)) {
    auto const part = bytes.subspan(begin, own.size());
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

std::vector<std::vector<std::byte>> gather_uneven_bytes(Communicator const& group, std::span<std::byte const> own) {
  if (group.size() == 1) {
    return {{own.begin(), own.end()}};
  }
  auto const sizes = gather_values(group, static_cast<std::int64_t>(own.size()));
  std::vector<std::int64_t> rows;
  std::int64_t total = 0;
  for (std::int64_t const size : sizes) {
    rows.push_back(std::max<std::int64_t>(static_cast<std::int64_t>(words_for(static_cast<std::size_t>(size))), 1));
    total += rows.back();
  }
  Words words = words_of(own);
  Words received(static_cast<std::size_t>(total));
  group.all_gather_rows(tensor_of(words), tensor_of(received), rows);
  auto bytes = std::as_bytes(std::span(received));
  std::vector<std::vector<std::byte>> result;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    auto const part = bytes.first(static_cast<std::size_t>(sizes[rank]));
    result.emplace_back(part.begin(), part.end());
    bytes = bytes.subspan(static_cast<std::size_t>(rows[rank]) * sizeof(std::int32_t));
  }
  return result;
}

std::string broadcast_text(Communicator const& group, std::string text, int root) {
  text.resize(static_cast<std::size_t>(broadcast_value(group, static_cast<std::int64_t>(text.size()), root)));
  broadcast_bytes(group, std::as_writable_bytes(std::span(text)), root);
  return text;
}

std::vector<std::string> gather_texts(Communicator const& group, std::string const& own) {
  std::vector<std::string> texts;
  for (std::vector<char> const& letters : gather_lists<char>(group, own)) {
    texts.emplace_back(letters.begin(), letters.end());
  }
  return texts;
}

void sum_over_model(ParallelState const& parallel, std::span<double> values) {
  for (MeshAxis const axis : parallel.mesh.shape().model_axes()) {
    all_reduce_values(parallel.group({axis}), values);
  }
  all_reduce_values(parallel.pipeline, values);
}

bool any_of(Communicator const& group, bool own) {
  std::int32_t any = own ? 1 : 0;
  all_reduce_values(group, std::span(&any, 1), ReduceOp::max);
  return any != 0;
}

}  // namespace heddle

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <heddle/core/parallel/communicator.hpp>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace heddle {

// Small values on the host that ranks exchange: numbers, strings, plain structs. All functions except send and receive
// are collective over the group. They are built on the communicator's tensor collectives, and keep every bit; a group
// of one rank needs no tensors. Values must have the same meaning on every rank: no pointers.

/// bytes = those of rank `root`; every rank gives the same number.
void broadcast_bytes(Communicator const& group, std::span<std::byte> bytes, int root);
/// Every rank's bytes in rank order; every rank gives the same number.
std::vector<std::byte> gather_bytes(Communicator const& group, std::span<std::byte const> own);
/// Every rank's bytes: [rank]. Ranks may give different numbers of them.
std::vector<std::vector<std::byte>> gather_uneven_bytes(Communicator const& group, std::span<std::byte const> own);

/// Sends bytes to rank `to`, which calls receive_bytes for the same number of them. Both return when their bytes may be
/// used again. Between these two ranks only, not collective.
void send_bytes(Communicator const& group, std::span<std::byte const> bytes, int to);
/// bytes = those that rank `from` sends.
void receive_bytes(Communicator const& group, std::span<std::byte> bytes, int from);

/// The string of rank `root`, on every rank.
std::string broadcast_text(Communicator const& group, std::string text, int root = 0);
/// Every rank's string: [rank].
std::vector<std::string> gather_texts(Communicator const& group, std::string const& own);

/// values = their sums (or maxima, minima) over the group, element by element; every rank gives the same number.
template <class T>
void all_reduce_values(Communicator const& group, std::span<T> values, ReduceOp op = ReduceOp::sum) {
  if (group.size() > 1) {
    Shape const shape{static_cast<std::int64_t>(values.size())};
    group.all_reduce(Tensor::borrow(values.data(), DTypeOf<T>::value, shape, MemorySpace::host), op);
  }
}

/// values = their sums over MeshShape::model_axes and then pipeline, element by element: over the parts of a model that
/// ranks hold, of which copies count once (Placement::counts). Collective over these axes.
void sum_over_model(ParallelState const& parallel, std::span<double> values);

/// True on every rank if `value` is true on any.
bool any_of(Communicator const& group, bool own);

/// The value of rank `root`, on every rank.
template <class T>
T broadcast_value(Communicator const& group, T value, int root = 0) {
  static_assert(std::is_trivially_copyable_v<T>);
  broadcast_bytes(group, std::as_writable_bytes(std::span(&value, 1)), root);
  return value;
}

/// A value for rank `to`, and the value that rank `from` sends: as send_bytes and receive_bytes.
template <class T>
void send_value(Communicator const& group, T const& value, int to) {
  static_assert(std::is_trivially_copyable_v<T>);
  send_bytes(group, std::as_bytes(std::span(&value, 1)), to);
}
template <class T>
T receive_value(Communicator const& group, int from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value{};
  receive_bytes(group, std::as_writable_bytes(std::span(&value, 1)), from);
  return value;
}

/// Every rank's value: [rank].
template <class T>
std::vector<T> gather_values(Communicator const& group, T const& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> values(static_cast<std::size_t>(group.size()));
  auto const bytes = gather_bytes(group, std::as_bytes(std::span(&own, 1)));
  std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(values)).begin());
  return values;
}

/// Every rank's list of values: [rank]. The lists may have different lengths.
template <class T>
std::vector<std::vector<T>> gather_lists(Communicator const& group, std::span<T const> own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::vector<T>> lists;
  for (auto const& bytes : gather_uneven_bytes(group, std::as_bytes(own))) {
    auto& list = lists.emplace_back(bytes.size() / sizeof(T));
    std::copy(bytes.begin(), bytes.end(), std::as_writable_bytes(std::span(list)).begin());
  }
  return lists;
}

/// The maximum of the ranks' values, on every rank.
template <class T>
T max_of(Communicator const& group, T const& own) {
  auto const values = gather_values(group, own);
  return *std::max_element(values.begin(), values.end());
}

/// The sums of the ranks' values, element by element, in a fixed order, on every rank; every rank gives the same
/// number of values.
template <class T>
std::vector<T> sums_of(Communicator const& group, std::vector<T> const& own) {
  std::vector<T> sums(own.size());
  for (auto const& list : gather_lists<T>(group, own)) {
    std::transform(list.begin(), list.end(), sums.begin(), sums.begin(), [](T value, T sum) { return sum + value; });
  }
  return sums;
}

}  // namespace heddle

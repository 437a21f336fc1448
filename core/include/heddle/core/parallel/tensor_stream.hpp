#pragma once

#include <cstddef>
#include <cstdint>
#include <heddle/core/base/dtype.hpp>
#include <heddle/core/base/index_range.hpp>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace heddle {

/// The key of a parameter's value among its arrays.
inline constexpr char const* value_key = "value";
/// The key of the average of a parameter's values, where one is kept: optimizer.average.
inline constexpr char const* average_key = "average";
/// The key of earlier values number `index`, from 0, of which that average is made: optimizer.average = "lawa".
inline std::string averaged_key(std::int64_t index) {
  return std::string(average_key) + "." + std::to_string(index + 1);
}
/// Whether what is kept under the key are values, the average or one of those of which it is made.
inline bool is_of_average(std::string const& key) {
  return key == average_key || key.starts_with(std::string(average_key) + ".");
}

/// A parameter in canonical form: whole, row major. Besides its value it may have arrays that an update rule keeps,
/// each under a key of its own, such as "adam.first_moment".
struct StreamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<std::string> keys = {value_key};                         ///< of its arrays; the first is the value's
  std::map<std::string, std::vector<std::int64_t>> other_shapes = {};  ///< of arrays of another shape, by key
  DType dtype = DType::float32;  ///< of its arrays in a file: float32, or bfloat16, to which their values are rounded

  /// The shape of the array of that key.
  std::vector<std::int64_t> const& shape_of(std::string const& key) const {
    auto const other = other_shapes.find(key);
    return other == other_shapes.end() ? shape : other->second;
  }
};

/// Consecutive elements of one array of a tensor in canonical form.
struct TensorChunk {
  std::size_t tensor = 0;  ///< index into TensorStream::tensors
  std::size_t key = 0;     ///< index into the tensor's keys
  IndexRange elements;
};

/// The tensors of a model in canonical form, chunk by chunk, from the ranks that hold their elements to one rank that
/// needs them: no rank ever holds a whole model. A chunk travels when its receiver calls `receive` and every other
/// rank `send`; all ranks pass the chunks in the same order, and end each round of chunks with `wait`. In a round a
/// rank receives at most one chunk, and starts its sends before.
class TensorStream {
 public:
  virtual ~TensorStream() = default;

  /// Equal on every rank.
  virtual std::vector<StreamedTensor> const& tensors() const = 0;
  /// Starts to send the elements of the chunk that this rank provides, if any.
  virtual void send(TensorChunk const& chunk, int receiver) = 0;
  /// Fills `elements` [chunk.elements.count()] with this rank's own elements and those of others.
  virtual void receive(TensorChunk const& chunk, std::span<float> elements) = 0;
  /// Waits until what was sent in the round before has arrived: only then is its memory free.
  virtual void wait() = 0;
};

/// The tensors of a model for one rank: derived classes list them in `tensors_` and read their elements in `receive`.
class OneRankTensors : public TensorStream {
 public:
  std::vector<StreamedTensor> const& tensors() const override { return tensors_; }
  void send(TensorChunk const& /*chunk*/, int /*receiver*/) override {}
  void wait() override {}

 protected:
  std::vector<StreamedTensor> tensors_;
};

}  // namespace heddle

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <heddle/core/mesh.hpp>
#include <heddle/core/tensor.hpp>
#include <string>
#include <vector>

namespace heddle {

/// Which axis of the global tensor is split evenly over which mesh axis. `axis < 0`: every rank holds the whole.
struct ShardSpec {
  int axis = -1;
  MeshAxis mesh_axis = MeshAxis::tensor;
};

/// How a parameter starts. Values depend on (seed, name, global index) alone.
struct Initializer {
  enum class Kind : std::uint8_t { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  double scale = 0;  ///< standard deviation (normal) or bound (uniform)

  static Initializer zeros() { return {}; }
  static Initializer ones() { return {Kind::ones, 0}; }
  static Initializer normal(double deviation) { return {Kind::normal, deviation}; }
  /// Glorot & Bengio 2010.
  static Initializer xavier_uniform(std::int64_t fan_in, std::int64_t fan_out);
};

/// What a layer declares: all that io and dist ever need to know of a parameter.
struct ParameterSpec {
  std::string name;
  Shape shape;  ///< global
  Initializer initializer;
  ShardSpec shard;
  std::vector<MeshAxis> gradient_partial_over;  ///< axes whose ranks each hold a part of the gradient's sum
};

struct Parameter {
  ParameterSpec spec;
  Shape local_shape;
  std::int64_t shard_begin = 0;  ///< first index held along spec.shard.axis
  std::uint64_t id = 0;          ///< unique in the process, for kernels that keep packed copies
  std::uint64_t version = 0;     ///< bumped by whoever changes `value`
  Tensor value;                  ///< master copy, [local_shape]
  Tensor gradient;               ///< [local_shape], added to by backward passes
};

/// A model's parameters, their values and gradients each in one contiguous buffer. Layers declare theirs while they are
/// built and keep the reference; `allocate` then makes the buffers.
class ParameterSet {
 public:
  explicit ParameterSet(Mesh const& mesh) : mesh_(mesh) {}

  /// Throws Error for a name that is taken and ConfigError where the shard does not divide.
  Parameter& declare(ParameterSpec spec);
  /// Makes the buffers (values uninitialised, gradients zero); no parameter can be declared afterwards.
  void allocate(DType dtype);
  /// Fills every value from (seed, name, global index).
  void initialize(std::uint64_t seed);

  std::deque<Parameter>& all() { return parameters_; }
  std::deque<Parameter> const& all() const { return parameters_; }
  Parameter const* find(std::string const& name) const;
  /// Local elements in all.
  std::int64_t size() const { return size_; }
  Tensor const& values() const { return values_; }        ///< [size]
  Tensor const& gradients() const { return gradients_; }  ///< [size]
  /// To be called by whoever changed the values.
  void bump_versions();

 private:
  Mesh mesh_;
  std::deque<Parameter> parameters_;
  std::int64_t size_ = 0;
  Tensor values_;
  Tensor gradients_;
};

}  // namespace heddle

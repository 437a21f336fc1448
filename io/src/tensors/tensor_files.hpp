#pragma once

#include <heddle/io/hdf5/hdf5.hpp>
#include <heddle/io/tensors/tensor_info.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// The HDF5 files with tensors inside a checkpoint directory; docs/reference/checkpoint-format.md describes them.
namespace heddle {

/// Writes, or returns the version of, the attributes of every HDF5 file of a checkpoint: format and version. Throws
/// DataError unless they are of a checkpoint that can be read.
void set_checkpoint_format(hdf5::File& file);
std::int64_t checkpoint_format_of(hdf5::File const& file);

/// "tensors-00000.h5"
std::string tensor_file_name(std::size_t number);

/// The key for the name of an array in format 3, and the reverse: only the moments have other names there.
std::string key_of_format_3(std::string const& name);
std::string name_in_format_3(std::string const& key);

/// Finds numbers that no training leaves under a key: "values that are not finite", "negative values" (where the key
/// ends in "second_moment"), or "" if all numbers may be kept.
std::string refused_values(std::span<float const> numbers, std::string const& key);

/// One array of a tensor in a file.
struct TensorExtent {
  std::size_t tensor;
  std::size_t key;
  std::int64_t offset;
  std::int64_t elements;
  std::int64_t element_bytes = sizeof(float);
};

/// A file before its tensors are written.
struct TensorFile {
  std::shared_ptr<hdf5::FileImage> image;  ///< all of its bytes except the tensors'
  std::vector<TensorExtent> extents;       ///< by ascending offset; tensors without elements are left out
};

struct TensorFiles {
  std::vector<TensorFile> files;
  std::vector<TensorInfo> tensors;
};

/// Throws Error for names, shapes and keys that cannot be written.
void check_tensors(std::vector<TensorInfo> const& tensors);

/// The division of tensors among at most `writers` files of about equal size. In each of them large values are before
/// other large arrays, so that they can be verified alone. A pure function: all ranks compute the same. Throws as
/// check_tensors does.
TensorFiles plan_tensor_files(std::vector<StreamedTensor> const& tensors, std::int64_t writers);

/// Throws DataError unless the HDF5 file in `bytes` has the tensors that the index places in file `number`, and no
/// others, at their offsets.
void check_tensor_file(std::shared_ptr<hdf5::ByteStore> bytes, std::string const& path,
                       std::vector<TensorInfo> const& tensors, std::size_t number);

}  // namespace heddle

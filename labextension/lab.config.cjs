// Modules are named by their paths in this folder. By their numbers, which hash the folder's own absolute path,
// two machines would make two builds of the same sources.
module.exports = { optimization: { moduleIds: 'named' } };

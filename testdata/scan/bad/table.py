__import__('os').getcwd()	-1.0
